"""A large segment is made in little memory, however large it is."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

LARGE_MIB = 256
MOST_MIB = 64

_PROGRAM = """
    import asyncio, sys
    from resource import RUSAGE_SELF, getrusage
    from stratalog.batch.build import build_batch
    from stratalog.batch.records import Record
    from stratalog.clock import SystemClock
    from stratalog.ids import LeaderEpoch, Offset
    from stratalog.objects.open import open_store
    from stratalog.segment.build import SegmentBuilder
    from stratalog.segment.key_ring import KeyRing
    from stratalog.segment.model import SourceRun
    from stratalog.segment.chunk_encoding import Encoding
    from stratalog.segment.upload import upload_log

    url, compress, large_mib = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
    # Incompressible would be slower, and no other for what is held.
    batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(range(256)) * 4095)])

    async def make(store, mib):
        builder = SegmentBuilder(Offset(0))
        async def parts():
            for offset in range(mib):
                run = SourceRun(Offset(offset), Offset(offset), LeaderEpoch(0), stamped=False)
                yield builder.add(bytearray(batch), run)
        encoding = Encoding(compress=compress)
        uploaded = await upload_log(store, f"large-{mib}", parts(), encoding, KeyRing())
        assert builder.finish().size_bytes == uploaded.chunks.original_bytes == mib * len(batch)
        return getrusage(RUSAGE_SELF).ru_maxrss // 1024

    async def main():
        store = open_store(url, clock=SystemClock())
        before = await make(store, 1)
        print(await make(store, large_mib) - before)
        await store.close()

    asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is told in other units")
@pytest.mark.parametrize("compress", [False, True])
def test_a_large_segment_is_made_in_bounded_memory(tmp_path: Path, compress: bool) -> None:
    arguments = [f"file:{tmp_path}", str(compress), str(LARGE_MIB)]
    command = [sys.executable, "-c", dedent(_PROGRAM), *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) < MOST_MIB
    if not compress:
        assert (tmp_path / f"large-{LARGE_MIB}.log").stat().st_size >= (LARGE_MIB - 1) << 20
