"""The last step of a run: what nobody needs any more goes, by the janitor's own steps.

A pipeline that runs alone has to do what a broker's janitor does, or topics that were deleted and
records that have expired keep their space. Retention is left to brokers while one is alive: what a
topic keeps may follow from their settings, which a run elsewhere need not share.
"""

from contextlib import suppress

from stratalog.clock import Clock
from stratalog.control.model import Topic
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings
from stratalog.topic.retention import retention_by


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
        self._control = control
        self._by_settings = retention_by(settings.topic)
        self._brokers_alive = True
        self._janitor = Janitor(
            control=control,
            store=store,
            retention_of=self._retention_of,
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
        self._brokers_alive = True
        with suppress(StratalogError):
            self._brokers_alive = any(broker.alive for broker in await self._control.brokers())
        return await self._janitor.free_store()

    def _retention_of(self, topic: Topic) -> Retention:
        if self._brokers_alive:
            return Retention(ms=None, bytes=None)
        return self._by_settings(topic)
