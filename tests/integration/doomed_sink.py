"""A process that writes rows 0 to 99 and dies between its uploads, or at its commit, just before it
or just after it.

Run as: python -m tests.integration.doomed_sink CONFIG uploading|before|after
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from tests.support.ledgers import ControlWrapper
from tests.support.sink_topics import SCHEMA, TOPIC, batches

import stratalog.spark.sink as sink
import stratalog.spark.sink_task as sink_task
from stratalog.block.block import SealedBlock
from stratalog.control.plane import ControlPlane
from stratalog.opening.cluster import open_control
from stratalog.settings import Settings
from stratalog.spark.sink_rows import grouped
from stratalog.spark.sink_uploads import Uploads


class DoomedControl(ControlWrapper):
    def __init__(self, control: ControlPlane, moment: str) -> None:
        super().__init__(control)
        self._moment = moment

    async def scans_commit_sink(self, *arguments: Any, **how: Any) -> Any:
        if self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = await self.inner.scans.commit_sink(*arguments, **how)
        if self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


class DoomedUploads(Uploads):
    """Dies when it is to begin with the third block, and the second may be under way."""

    def add(self, block: SealedBlock) -> None:
        if len(self._blocks) == 2:
            self._under_way.popleft().result()
            os.kill(os.getpid(), signal.SIGKILL)
        super().add(block)


def small_groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Four blocks."""
    return grouped(rows, max_rows=25)


def main(config: Path, moment: str) -> None:
    options = {"topic": TOPIC, "config": str(config), "sinkId": "doomed"}
    writer = sink.open_writer(options, SCHEMA, overwrite=False)
    uploads = DoomedUploads if moment == "uploading" else Uploads
    with patch.multiple(sink_task, Uploads=uploads, grouped=small_groups):
        message = writer.write(iter(batches(0, 100)))

    async def opened(settings: Settings) -> Any:
        return DoomedControl(await open_control(settings), moment)

    with patch.object(sink, "open_control", opened):
        writer.commit([message])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
