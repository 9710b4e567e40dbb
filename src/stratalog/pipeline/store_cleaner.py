"""The last step of a run: what nobody needs any more goes, by the janitor's own steps.

A pipeline that runs alone has to do what a broker's janitor does, or topics that were deleted and
records that have expired keep their space. Only what a topic's own configs say expires here. What
follows from defaults is for brokers: a run elsewhere need not have their settings, and what is
deleted by the wrong ones is lost.
"""

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.janitor.service import Janitor
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings
from stratalog.topic.retention import retention_by

_UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


class Cleaner:
    def __init__(
        self,
        *,
        control: ControlPlane,
        store: ObjectStore,
        segments: SegmentStores,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._janitor = Janitor(
            control=control,
            store=store,
            retention_of=retention_by(_UNLIMITED),
            settings=settings.janitor,
            offsets_retention_ms=settings.groups.offsets_retention_ms,
            clock=clock,
            segments=segments,
            segment_prefix=settings.remote.prefix,
        )

    async def clean(self) -> int:
        """Delete what may go by now; return how many objects and segments that were.

        A step that fails is logged, and done by whoever cleans next.
        """
        return await self._janitor.free_store()
