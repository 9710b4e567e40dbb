"""The storage of a node: its control plane and its object stores, opened and claimed."""

from stratalog.block.newest_footers import check_not_behind
from stratalog.control.plane import ControlPlane
from stratalog.node.ground import Ground
from stratalog.node.parts import Part, Parts
from stratalog.node.patience import patiently
from stratalog.node.phases import Phase
from stratalog.objects.store import ObjectStore
from stratalog.opening.cluster import OpenCluster, Rights, open_cluster


async def open_storage(
    parts: Parts,
    ground: Ground,
    *,
    control: ControlPlane | None = None,
    objects: ObjectStore | None = None,
) -> OpenCluster:
    """Open the cluster and claim its stores. A control plane or a store of blocks that is given is
    used instead of opened, and is closed with the node."""
    if control is not None:
        # An open cluster leaves a control plane that it was given to its owner, which is the node.
        close = Part(name="the control plane", stops_in=Phase.RELEASE, stop=control.close)
        await parts.start(close)
    cluster = await patiently(
        "The control plane",
        lambda: open_cluster(
            ground.settings,
            Rights.MAKE,
            checked=False,
            clock=ground.clock,
            entropy=ground.entropy,
            metrics=ground.metrics,
            control=control,
            objects=objects,
        ),
        ground.clock,
    )
    await parts.start(Part(name="the storage", stops_in=Phase.RELEASE, stop=cluster.close))
    await patiently("The object store", cluster.check_stores, ground.clock)
    await patiently(
        "The object store",
        lambda: check_not_behind(cluster.control, cluster.objects, ground.clock.now_ms()),
        ground.clock,
    )
    return cluster
