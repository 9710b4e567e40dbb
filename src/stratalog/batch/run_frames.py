"""The batches of a run, found and checked all at once. Importing this loads the compiler, and the
compiled loops."""

from typing import Any

import numpy as np
import pyarrow as pa

from stratalog.batch.batch_crcs import are_right
from stratalog.batch.column_layout import FRAME, REFUSED
from stratalog.batch.compiled_decode import count_batches, read_frames
from stratalog.batch.header import BytesLike


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
    return are_right(data, frames.view(np.int64).reshape(len(frames), FRAME.itemsize // 8))
