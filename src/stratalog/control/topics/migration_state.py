"""The migration state of a partition: derived from its offsets, never stored.

Pure. The operations of `migration.py` ask here before they change anything.
"""

from enum import StrEnum

from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.ids import Offset


class MigrationState(StrEnum):
    TIERED_ONLY = "tiered-only"
    """Appends go to local files, and no switch is begun. An adopted topic is here, too."""
    MIGRATING = "migrating"
    """The switch to blocks was begun, or is done while local files still serve some reads."""
    HYBRID = "hybrid"
    """Segments serve the older offsets, blocks the newer ones and the appends."""
    DISKLESS_ONLY = "diskless-only"
    """Blocks serve everything."""


class Tier(StrEnum):
    REMOTE = "remote"
    LOCAL = "local"
    BLOCK = "block"
    NONE = "none"
    """No tier serves the offset: it was deleted, or not yet written."""


_EDGES = frozenset(
    {
        (MigrationState.TIERED_ONLY, MigrationState.MIGRATING),
        (MigrationState.MIGRATING, MigrationState.TIERED_ONLY),
        (MigrationState.MIGRATING, MigrationState.HYBRID),
        # Nothing was ever written, or all of it was deleted.
        (MigrationState.MIGRATING, MigrationState.DISKLESS_ONLY),
        # The merge chains the first segment; retention takes the last one away.
        (MigrationState.DISKLESS_ONLY, MigrationState.HYBRID),
        (MigrationState.HYBRID, MigrationState.DISKLESS_ONLY),
    }
)


def migration_state(state: PartitionState) -> MigrationState:
    if state.write_tier is WriteTier.LOCAL:
        return MigrationState.MIGRATING if state.migrating else MigrationState.TIERED_ONLY
    if state.remote_end < state.block_start and state.log_start < state.block_start:
        return MigrationState.MIGRATING
    if state.log_start < state.remote_end:
        return MigrationState.HYBRID
    return MigrationState.DISKLESS_ONLY


def tier_of(state: PartitionState, offset: Offset) -> Tier:
    """Return the tier from which the record of this offset is read."""
    if not state.log_start <= offset < state.high_watermark:
        return Tier.NONE
    if state.block_start <= offset < state.block_end:
        return Tier.BLOCK
    return Tier.REMOTE if offset < state.remote_end else Tier.LOCAL


def check_state(state: PartitionState) -> list[str]:
    """Return the relations of these offsets that fit no migration state."""
    breaches: list[str] = []
    if state.write_tier is WriteTier.LOCAL:
        if state.block_start < state.block_end:
            breaches.append(
                f"blocks serve {state.block_start} to {state.block_end},"
                " although appends go to local files"
            )
        return breaches
    if state.migrating:
        breaches.append("a switch to blocks is under way, although appends go to blocks")
    if state.block_end != state.high_watermark:
        breaches.append(
            f"block_end {state.block_end} is not the high watermark {state.high_watermark},"
            " although appends go to blocks"
        )
    if state.remote_end > state.block_start:
        breaches.append(f"remote_end {state.remote_end} is after block_start {state.block_start}")
    return breaches


def check_transition(before: PartitionState, after: PartitionState) -> list[str]:
    """Return the reasons against this change."""
    breaches = check_state(after)
    edge = (migration_state(before), migration_state(after))
    if edge[0] is not edge[1] and edge not in _EDGES:
        breaches.append(f"no way leads from {edge[0]} to {edge[1]}")
    if before.write_tier is WriteTier.BLOCK and after.write_tier is WriteTier.LOCAL:
        breaches.append("appends go to blocks already")
    return breaches
