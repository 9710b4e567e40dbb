"""Acceptance of a control plane that went back: the way out of a halt, for an operator.

1. The markers of the stores are read. Nothing changes if one is another cluster's or is missing.
2. One transaction of the control plane: the generation rises to the highest of the markers,
   producer ids are skipped, all writers end, and the cluster is not halted any more. From here on
   brokers may start, and a broker that still runs is refused at its next commit, because its writer
   has ended.
3. Each marker gets the next generation. A crash before leaves markers that are not ahead, which the
   next broker raises.
"""

from stratalog.control.identity.model import Cluster
from stratalog.control.plane import ControlPlane
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import renew_claim
from stratalog.opening.marker import check_owner, marker_missing, read_marker


async def accept_control_plane(control: ControlPlane, stores: list[ObjectStore]) -> Cluster:
    """Go on with this control plane, whatever it has forgotten."""
    cluster = await control.identity.cluster()
    generation = cluster.generation
    for store in stores:
        found = await read_marker(store)
        if found is None:
            raise marker_missing(store)
        check_owner(found[0], cluster)
        generation = max(generation, found[0].generation)
    await control.identity.accept(generation=generation)
    for store in stores:
        cluster = await renew_claim(control, store)
    return cluster
