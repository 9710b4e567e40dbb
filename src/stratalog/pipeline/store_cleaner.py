"""The last step of a run: deleting objects that are not needed any more, by the janitor's steps.

A pipeline that runs alone has to do the work of a broker's janitor, or deleted topics and expired
records keep their space. It goes by the settings that the cluster's brokers share. If the control
plane has none yet, because no broker of this version has started, topics without a retention of
their own keep their records: a run elsewhere need not have the brokers' settings.
"""

from dataclasses import replace

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.janitor.service import Janitor, Rules
from stratalog.objects.store import ObjectStore
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings
from stratalog.topic.janitor_rules import rules_of
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
        shared = ClusterSettings(control, settings)

        async def rules() -> Rules:
            in_force = await shared.read()
            if in_force.complete:
                return rules_of(in_force)
            return rules_of(
                replace(in_force, settings=replace(in_force.settings, topic=_UNLIMITED))
            )

        self._janitor = Janitor(
            control=control,
            store=store,
            retention_of=retention_by(_UNLIMITED),
            settings=settings.janitor,
            offsets_retention_ms=settings.groups.offsets_retention_ms,
            clock=clock,
            segments=segments,
            segment_prefix=settings.remote.prefix,
            rules=rules,
        )

    async def clean(self) -> int:
        """Delete objects and segments whose grace is over, and return their number.

        A step that fails is logged, and left to the next cleaning.
        """
        return await self._janitor.free_store()
