"""The last step of a run: what nobody needs any more goes, with the janitor's own steps.

Beside a broker its janitor does all this anyway. A pipeline that runs alone has to do it itself.
"""

import logging
from collections.abc import Awaitable, Callable

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.janitor.deletion import delete_marked
from stratalog.janitor.segment_sweeper import SegmentSweeper
from stratalog.janitor.segments import clear_unfinished, delete_doomed
from stratalog.janitor.sweeper import Sweeper
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import JanitorSettings

log = logging.getLogger(__name__)


class Cleaner:
    def __init__(
        self,
        *,
        control: ControlPlane,
        store: ObjectStore,
        segments: SegmentStores,
        segment_prefix: str,
        settings: JanitorSettings,
        clock: Clock,
    ) -> None:
        self._control = control
        self._store = store
        self._segments = segments
        self._settings = settings
        self._sweeper = Sweeper(control, store, clock=clock, orphan_age_ms=settings.orphan_age_ms)
        self._segment_sweeper = SegmentSweeper(
            control,
            segments.own,
            prefix=segment_prefix,
            clock=clock,
            orphan_age_ms=settings.orphan_age_ms,
        )

    async def clean(self) -> int:
        """Delete what may go by now; return how many objects and segments that were.

        A step that fails is logged, and done by whoever cleans next.
        """
        deleted = 0
        for step in (
            self._unfinished,
            self._doomed,
            self._marked,
            self._orphans,
            self._segment_orphans,
        ):
            deleted += await _counted(step)
        return deleted

    async def _unfinished(self) -> int:
        await clear_unfinished(
            self._control,
            older_than_ms=self._settings.unfinished_age_ms,
            chunk_rows=self._settings.chunk_rows,
        )
        return 0

    async def _doomed(self) -> int:
        return await delete_doomed(
            self._control,
            self._segments,
            grace_ms=self._settings.grace_ms,
            chunk_rows=self._settings.chunk_rows,
        )

    async def _marked(self) -> int:
        return await delete_marked(
            self._control,
            self._store,
            grace_ms=self._settings.grace_ms,
            chunk_rows=self._settings.chunk_rows,
        )

    async def _orphans(self) -> int:
        return (await self._sweeper.sweep()).deleted

    async def _segment_orphans(self) -> int:
        return (await self._segment_sweeper.sweep()).deleted


async def _counted(step: Callable[[], Awaitable[int]]) -> int:
    try:
        return await step()
    except StratalogError as error:
        log.warning("Objects that nobody needs keep their space for now: %s", error)
        return 0
