"""A process that writes rows 0 to 99 and dies at its commit, just before it or just after it.

Run as: python -m tests.integration.doomed_sink CONFIG before|after
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.integration.sink_topics import SCHEMA, TOPIC, batches

import stratalog.spark.sink as sink
from stratalog.control.open import open_existing


class DoomedControl:
    def __init__(self, control: Any, moment: str) -> None:
        self._control = control
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    async def commit_sink(self, *arguments: Any) -> Any:
        if self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = await self._control.commit_sink(*arguments)
        if self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


def main(config: Path, moment: str) -> None:
    options = {"topic": TOPIC, "config": str(config), "sinkId": "doomed"}
    writer = sink.open_writer(options, SCHEMA, overwrite=False)
    message = writer.write(iter(batches(0, 100)))

    async def opened(url: str) -> Any:
        return DoomedControl(await open_existing(url), moment)

    with patch.object(sink, "open_existing", opened):
        writer.commit([message])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
