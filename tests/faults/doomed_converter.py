"""A converter in a process of its own, made to be killed: `doomed_converter <folder> <topic>`.

It converts for ever, a few rows at a time, and says so once when it begins.
"""

import asyncio
import sys
from pathlib import Path

from tests.tiering import Converter

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.errors import StaleError
from stratalog.objects.open import open_store


async def convert_for_ever(folder: Path, name: str) -> None:
    control = await open_control_plane(f"sqlite:{folder / 'control.db'}")
    store = open_store(f"file:{folder / 'objects'}", clock=SystemClock())
    [topic] = await control.topics_named([name])
    converter = Converter(control=control, store=store)
    print("ready", flush=True)
    while True:
        for partition in range(topic.partition_count):
            try:
                made = await converter.convert(topic, partition, max_rows=3)
            except StaleError:
                # Another converter was faster, or what it was about to convert was deleted.
                made = None
            if made is None:
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(convert_for_ever(Path(sys.argv[1]), sys.argv[2]))
