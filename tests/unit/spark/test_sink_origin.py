"""The origin of a stream's batches: the id of its checkpoint, or where the checkpoint lies."""

import json
from pathlib import Path

import pytest

from stratalog.control.scans.model import SinkOrigin
from stratalog.spark.errors import OptionError
from stratalog.spark.sink_options import batch_sink_options, stream_sink_options
from stratalog.spark.sink_origin import sink_origin


def _origin(**options: str) -> SinkOrigin | None:
    return sink_origin(stream_sink_options(options))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_checkpoint_is_known_by_its_id_wherever_it_lies(tmp_path: Path, scheme: str) -> None:
    for name in ("here", "moved here"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "metadata").write_text(json.dumps({"id": "f00"}) + "\n")
        location = f"{scheme}{folder}".replace(" ", "%20" if scheme else " ")
        assert _origin(checkpointLocation=location) == SinkOrigin("checkpoint", "f00")


@pytest.mark.parametrize("content", ["", "[]", "{}", "no json"])
def test_a_checkpoint_that_cannot_be_read_is_known_by_its_location(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "metadata").write_text(content)
    location = str(tmp_path)
    assert _origin(checkpointLocation=f"{location}/") == SinkOrigin("location", location)
    assert _origin(checkpointLocation="s3a://b/c") == SinkOrigin("location", "s3a://b/c")


def test_an_id_that_is_given_counts_before_all_else(tmp_path: Path) -> None:
    given = _origin(checkpointLocation=str(tmp_path), checkpointId="mine")
    assert given == SinkOrigin("checkpoint", "mine")
    assert _origin() is None
    with pytest.raises(OptionError, match="checkpointId"):
        batch_sink_options({"checkpointId": "mine"})
