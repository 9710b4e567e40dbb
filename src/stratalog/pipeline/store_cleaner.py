"""The last step of a run: deleting objects that are not needed any more, by the janitor's steps.

A pipeline that runs alone has to do the work of a broker's janitor, or deleted topics and expired
records keep their space. Records expire here only by the configs of their own topic. Expiry by
default configs is for brokers: a run elsewhere need not have their settings, and records that are
deleted by wrong settings are lost.
"""

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.janitor.service import Janitor
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings
from stratalog.topic.retention import retention_by

_UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


class StoreCleaner:
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
        """Delete objects and segments whose grace is over, and return their number.

        A step that fails is logged, and left to the next cleaning.
        """
        return await self._janitor.free_store()
