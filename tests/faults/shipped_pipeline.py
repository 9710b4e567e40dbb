"""The pipeline as it ships, but that its tasks run where Spark's driver would: in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.unit.pipeline.lab import EAGER
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.pipeline.driver import Driver
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.workplace import workplace_of
from stratalog.settings import Settings, StorageSettings

CLAIM_MS = 300
"""For this long no other run works on the claims of a killed one."""


@asynccontextmanager
async def shipped_pipeline(folder: Path) -> AsyncIterator[Driver]:
    """Over the control plane and the objects below this folder."""
    settings = Settings(
        storage=StorageSettings(
            objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
        ),
        tiering=replace(EAGER, splitter_claim_duration_ms=CLAIM_MS, max_attempts=1000),
    )
    jobs = LocalJobs(workplace_of(settings))
    async with opened_driver(settings, jobs.open, holder="doomed") as driver:
        yield driver
