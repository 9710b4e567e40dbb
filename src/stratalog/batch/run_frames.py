"""The batches of a run, found and checked all at once. Importing this loads the compiler, and the
compiled loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from stratalog.batch.code_cache import has_crc_instruction
from stratalog.batch.column_layout import FRAME, REFUSED
from stratalog.batch.compiled_decode import count_batches, read_frames
from stratalog.batch.header import CRC_START, BytesLike

all_right: Callable[[int, Any], int] | None = None
"""Where the processor has no instruction for it, the library knows other ways."""
if has_crc_instruction():
    from stratalog.batch.compiled_crc import all_right


def frames_of(data: BytesLike) -> Any | None:
    """Read the header of each batch. None if these are not whole batches."""
    source = pa.py_buffer(data)
    count = count_batches(source.address, source.size)
    if count == REFUSED:
        return None
    frames = np.zeros(count, FRAME)
    read_frames(source.address, frames)
    return frames


def crcs_hold(data: BytesLike, frames: Any) -> bool:
    if all_right is not None:
        return bool(all_right(pa.py_buffer(data).address, frames))
    view = memoryview(data)
    bounds = zip(frames["start"].tolist(), frames["end"].tolist(), strict=True)
    crcs = [crc32c(view[start + CRC_START : end]) for start, end in bounds]
    return bool(crcs == frames["crc"].tolist())
