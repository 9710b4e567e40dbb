"""Names with a NUL, which SQLite keeps and PostgreSQL refuses."""

from pathlib import Path

from stratalog.control.open import open_control_plane
from stratalog.control.scans.model import SinkOutcome
from stratalog.ids import BrokerId, new_uuid


async def test_sinks_whose_names_differ_after_a_nul_are_two_sinks(tmp_path: Path) -> None:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    assert await plane.scans.commit_sink("sink", 1, []) is SinkOutcome.COMMITTED
    assert await plane.scans.commit_sink("sink\0other", 7, []) is SinkOutcome.COMMITTED
    assert await plane.scans.last_sink_batch("sink") == 1
    assert await plane.scans.last_sink_batch("sink\0other") == 7
    await plane.close()


async def test_a_group_with_a_nul_in_its_name_is_opened_under_its_whole_name(
    tmp_path: Path,
) -> None:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    incarnation = new_uuid()
    await plane.brokers.register(
        BrokerId(1), host="h", port=1, rack=None, incarnation=incarnation, lease_ms=60_000
    )
    record = await plane.groups.open("group\0other", BrokerId(1), incarnation)
    assert record.group_id == "group\0other"
    await plane.close()
