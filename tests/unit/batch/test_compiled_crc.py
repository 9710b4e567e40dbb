import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from stratalog.batch.code_cache import has_crc_instruction
from stratalog.batch.column_layout import FRAME
from stratalog.batch.header import CRC_START

if not has_crc_instruction():
    pytest.skip("the processor has no instruction for CRC-32C", allow_module_level=True)

from stratalog.batch import compiled_crc

BATCHES = st.lists(
    st.binary(min_size=CRC_START, max_size=120) | st.just(bytes(range(256)) * 3), max_size=12
)


def frames_of(batches: list[bytes]) -> Any:
    frames = np.zeros(len(batches), FRAME)
    frames["end"] = np.cumsum([len(batch) for batch in batches])
    frames["start"][1:] = frames["end"][:-1]
    frames["crc"] = [crc32c(batch[CRC_START:]) for batch in batches]
    return frames


def all_right(batches: list[bytes], frames: Any) -> bool:
    held = pa.py_buffer(b"".join(batches))
    numbers = frames.view(np.int64).reshape(len(frames), FRAME.itemsize // 8)
    return bool(compiled_crc.all_right(held.address, numbers))


@given(BATCHES)
def test_it_finds_the_crcs_that_the_library_does(batches: list[bytes]) -> None:
    assert all_right(batches, frames_of(batches))


@given(BATCHES.filter(bool), st.data())
def test_no_wrong_bit_is_overlooked(batches: list[bytes], data: st.DataObject) -> None:
    frames = frames_of(batches)
    number = data.draw(st.integers(0, len(batches) - 1))
    if len(batches[number]) == CRC_START:
        frames["crc"][number] ^= 1 << data.draw(st.integers(0, 31))
    else:
        damaged = bytearray(batches[number])
        at = data.draw(st.integers(CRC_START, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        batches = [*batches[:number], bytes(damaged), *batches[number + 1 :]]
    assert not all_right(batches, frames)


_ON_ANOTHER_PROCESSOR = """
import sys
from stratalog.batch.build import build_batch
from stratalog.batch.columns import BatchRun, RecordColumn, RecordFilter, decode_run
from stratalog.batch.errors import CrcMismatchError
from stratalog.batch.log_place import LogBounds, LogPlace, Stamps, load_log_walk
from stratalog.batch.records import Record

data = bytearray(build_batch([Record(0, 1, None, b"value")]) * 4)
run, keep = BatchRun(0, stamped=False), RecordFilter(first_offset=0, end_offset=9)
assert decode_run(data, run, [RecordColumn.OFFSET], keep).columns.num_rows == 4
assert "stratalog.batch.compiled_crc" not in sys.modules
data[-1] ^= 1
place = LogPlace(expected=0)
bounds = LogBounds(wanted=0, last_offset=9, max_bytes=1000, at_least_one=True)
load_log_walk()(memoryview(data), place, bounds, Stamps(leader_epoch=0, append_time_ms=None))
assert place.at == 0
try:
    decode_run(data, run, [RecordColumn.OFFSET], keep)
except CrcMismatchError:
    print("found")
"""


def test_processors_without_the_instruction_leave_it_to_the_library(tmp_path: Path) -> None:
    """In a process of its own: on such a one, the compiler would end it."""
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _ON_ANOTHER_PROCESSOR],
        env=os.environ | other,
        check=True,
        capture_output=True,
    )
    assert done.stdout == b"found\n"
