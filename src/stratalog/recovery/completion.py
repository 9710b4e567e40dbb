"""From a control plane that was loaded, rebuilt or set back to one that brokers may use.

1. The cluster is halted: no broker commits to this control plane, and none starts.
2. The records that only the store knows are recovered, in one transaction (`recover.py`).
3. The control plane is accepted: the generation rises to the marker's, producer ids beyond any that
   may have been used, and all writers end. A crash behind this step leaves a control plane that
   is ahead of the marker, which means nothing.
4. The ids and the claims in the markers are taken over, and the markers are claimed. A broker that
   still runs on the old control plane is behind from here on.
5. The recovery is noted as finished. Until then no broker starts, and a repetition begins with 1
   and finds nothing new.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Progress
from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.control.recoveries.model import Recovery
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_anew
from stratalog.opening.marker import check_owner, check_store_id, marker_missing, read_marker
from stratalog.opening.segment_store import are_apart
from stratalog.recovery.recover import recover
from stratalog.recovery.report import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStores:
    """The stores that rows point into, and in which is searched for more."""

    objects: ObjectStore
    tier: RemoteTier


async def complete_recovery(
    control: ControlPlane,
    stores: RecoveryStores,
    begun: Recovery,
    *,
    skip_unproven: bool,
    progress: Progress,
    may_create_markers: bool = True,
) -> RecoveryReport:
    """Recover, claim the stores, and let brokers start. Repeat it after a crash.

    Nothing changes if a store is another cluster's, or has no marker and may not be given one.
    """
    own = stores.tier.stores.own
    places = {StoreRole.BLOCKS: stores.objects}
    if are_apart(stores.objects, own):
        places[StoreRole.SEGMENTS] = own
    generation = await _check_owned(control, places, may_create_markers)
    await control.identity.halt(f"It is being recovered from {begun.ground}.")
    report = await recover(
        control, stores.objects, stores.tier, skip_unproven=skip_unproven, progress=progress
    )
    await control.identity.accept(generation=generation)
    for role, store in places.items():
        await claim_anew(control, store, role, restored=True)
    await control.identity.note_segments_apart(are_apart(stores.objects, own), moved=True)
    await control.recoveries.finish(begun.recovery_id, json.dumps(report.as_dict()))
    return report


async def _check_owned(
    control: ControlPlane, stores: Mapping[StoreRole, ObjectStore], may_create_markers: bool
) -> int:
    """Return the highest generation of the markers."""
    cluster = await control.identity.cluster()
    generation = cluster.generation
    for role, store in stores.items():
        found = await read_marker(store)
        if found is not None:
            check_owner(found[0], cluster)
            check_store_id(found[0], cluster, role)
            generation = max(generation, found[0].generation)
        elif not may_create_markers:
            raise marker_missing(store)
    return generation
