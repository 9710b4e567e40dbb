"""The parts of a node that work in the background."""

from stratalog.janitor.service import Janitor, Rules
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.phases import Phase
from stratalog.opening.cluster import OpenCluster
from stratalog.opening.cluster_settings import ClusterSettings
from stratalog.topic.janitor_rules import rules_of
from stratalog.topic.retention import retention_by


async def start_janitor(
    parts: Parts, ground: Ground, cluster: OpenCluster, shared: ClusterSettings
) -> None:
    settings = ground.settings

    async def rules() -> Rules:
        return rules_of(await shared.read())

    janitor = Janitor(
        control=cluster.control,
        store=cluster.objects,
        retention_of=retention_by(settings.topic),
        settings=settings.janitor,
        offsets_retention_ms=settings.groups.offsets_retention_ms,
        clock=ground.clock,
        segments=cluster.segments,
        segment_prefix=settings.remote.prefix,
        metrics=ground.metrics,
        entropy=ground.entropy,
        on_claim_lost=ground.fence.close,
        rules=rules,
    )
    await parts.start(
        Part(
            name="the janitor",
            stops_in=Phase.END_BACKGROUND,
            start=janitor.start,
            stop=janitor.stop,
        )
    )


async def start_pipeline(parts: Parts, ground: Ground) -> None:
    """Convert aged records beside the broker, in a process of its own."""
    # Imported late: a broker without a pipeline need not load the rooms that work with Arrow.
    from stratalog.pipeline.service import PipelineService

    pipeline = PipelineService(ground.settings, clock=ground.clock, entropy=ground.entropy)
    await parts.start(
        Part(
            name="the pipeline",
            stops_in=Phase.END_BACKGROUND,
            start=pipeline.start,
            stop=pipeline.stop,
            # It has a control plane of its own, and its process may take half a minute to end,
            # for which clients of the broker should not wait.
            is_independent=True,
        )
    )
