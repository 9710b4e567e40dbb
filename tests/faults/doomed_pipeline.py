"""A pipeline in a process of its own, made to be killed: `doomed_pipeline <folder>`.

It converts for ever whatever there is, and says so once when it begins.
"""

import asyncio
import sys
from pathlib import Path

from tests.faults.shipped_pipeline import shipped_pipeline


async def convert_for_ever(folder: Path) -> None:
    async with shipped_pipeline(folder) as driver:
        print("ready", flush=True)
        while True:
            report = await driver.run()
            if report.did_nothing:
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(convert_for_ever(Path(sys.argv[1])))
