"""Scans that leave out the batches whose records cannot be decoded, and nothing else."""

import logging

import pytest
from tests.unit.batch.edits import edit, with_body
from tests.unit.scan.rig import NOW_MS, ScanRig

from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress
from stratalog.batch.header import Codec, parse_header
from stratalog.batch.records import Record
from stratalog.scan.errors import ScanDamagedError

GOOD = build_batch([Record(place, NOW_MS, b"k", b"v") for place in range(10)])
PACKED = build_batch([Record(place, NOW_MS, b"k", b"v") for place in range(10)], codec=Codec.ZSTD)
BAD = {
    "no records": with_body(GOOD, b"\xff" * 100),
    "cut off": with_body(PACKED, PACKED[61:-3]),
    "more counted than there are": edit(PACKED, records_count=11, last_offset_delta=10),
    "fewer counted than there are": edit(GOOD, records_count=9, last_offset_delta=8),
    "not compressed by its codec": with_body(PACKED, compress(Codec.GZIP, b"x")),
}


@pytest.mark.parametrize("mode", [None, "plain", "both"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_scan_goes_on_without_a_batch_that_cannot_be_decoded(
    rig: ScanRig, bad: bytes, mode: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await rig.topic()
    await rig.put(topic, {0: [GOOD, PACKED, bad, GOOD, PACKED]})
    if mode is not None:
        await rig.convert(topic, mode=mode)
    with pytest.raises(ScanDamagedError, match="onUndecodable"):
        await rig.rows()
    with caplog.at_level(logging.WARNING):
        rows = await rig.rows(skips_undecodable=True)
    following = 20 + parse_header(bad).records_count
    found = [row["offset"] for row in rows]
    assert found == [*range(20), *range(following, following + 20)]
    [line] = [record.getMessage() for record in caplog.records]
    assert f"orders-0, offsets 20 to {following - 1}, in object" in line


async def test_a_batch_with_a_wrong_checksum_is_not_left_out(rig: ScanRig) -> None:
    """It is damage of the store, of which there may be a good copy."""
    topic = await rig.topic()
    broken = bytearray(GOOD)
    broken[-1] ^= 1
    await rig.put(topic, {0: [GOOD, bytes(broken), GOOD]})
    with pytest.raises(ScanDamagedError, match="CRC"):
        await rig.rows(skips_undecodable=True)


async def test_all_batches_of_a_topic_may_be_left_out(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.put(topic, {0: [*BAD.values()]})
    assert await rig.rows(skips_undecodable=True) == []
