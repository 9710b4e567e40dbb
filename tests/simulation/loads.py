"""The load of a simulated run. The seed chooses one of four, each with a contention of its own.

A guard matters in a moment that lasts for milliseconds: between a plan and its transaction, between
a look and the read that follows. A load makes some of these moments long and frequent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    FetchSettings,
    JanitorSettings,
    RemoteSettings,
    Settings,
    TieringSettings,
)


@dataclass(frozen=True, kw_only=True)
class Load:
    settings: Settings
    kept: Mapping[str, str]
    """The configs of the topic from which nothing is deleted."""
    trimmed: Mapping[str, str]
    deleters: int = 1
    deleter_pause_s: float = 0.7
    most_kept: int = 120
    """A deletion leaves up to so many records."""
    consumers: int = 2
    has_rereader: bool = False
    """A consumer reads everything from the start, again and again."""
    in_flight: Sequence[int | None] = (None,)
    """The requests without an answer that an idempotent producer may have, as a closed loop: one of
    these. None is a producer that sends by the clock."""
    has_splitter: bool = False
    """The second pipeline is set to wait for larger segments than the first, so that it splits."""
    pipeline_pause_s: tuple[float, float] = (0.1, 1.0)
    segment_sweep_every: int = 2
    """Runs of a janitor. In earnest it is one in sixty, too rare for a few seconds."""
    slow_operations: Mapping[tuple[str, str], float] = field(default_factory=dict)
    slowness_s: float = 0.5
    """The time that a slow call takes at the most."""
    damage: tuple[float, ...] = (0.0, 0.0, 0.02)
    fault_strengths: tuple[float, ...] = (0.3, 1.0, 2.0)
    """Factors of the chances of a call to go wrong. A run of a pipeline has some thirty calls."""
    machine_faults_per_s: float = 1.8
    """Kills, pauses and jumps of clocks. The more there are, the less work is done."""
    chains_in_doubt: float = 0.0
    """How often a driver never hears whether its segment was chained, and leaves it unchained."""


def load_of(seed: int, random: Random) -> Load:
    return _LOADS[seed % len(_LOADS)](random)


def _everything(random: Random) -> Load:
    """A bit of everything."""
    return Load(
        settings=_settings(random),
        kept=_configs(random),
        trimmed={**_configs(random), "retention.bytes": str(random.choice([600, 4000]))},
        deleter_pause_s=random.choice([0.1, 0.7]),
        in_flight=(None, None, 1, 3),
    )


def _machines(random: Random) -> Load:
    """A bit of everything, on machines that fail more often, with leases that end in a pause."""
    return replace(
        _everything(random), settings=_settings(random, lease_ms=1000), machine_faults_per_s=4.0
    )


def _rows(random: Random) -> Load:
    """Splits, deletions and chains move the same rows, and are slow to commit their plans."""
    configs = {"segment.bytes": str(1 << 20), "segment.ms": "60000"}
    return Load(
        settings=_settings(
            random,
            window_ms=50,
            # Windows put several batches of a partition into a row, whose edges plans must meet.
            requests_per_second=0,
            max_bytes=8 << 20,
            age_ms=50,
            min_segment_bytes=random.choice([400, 800]),
            splitter_claim_duration_ms=random.choice([300, 1000]),
            max_rows=1,
            interval_ms=400,
            unfinished_age_ms=1,
            grace_ms=400,
            orphan_age_ms=200,
            cache_bytes=0,
        ),
        kept=configs,
        trimmed={**configs, "retention.bytes": str(random.choice([2000, 6000]))},
        deleters=3,
        deleter_pause_s=0.2,
        most_kept=25,
        has_splitter=True,
        pipeline_pause_s=(0.05, 0.6),
        slow_operations={
            ("", "_raise_starts"): 0.7,
            ("", "RetentionOperations"): 0.7,
            ("broker", "SharedWrites"): 0.8,
            ("broker", "get_ranges"): 0.4,
            ("pipeline 1", "claim_ranges"): 0.8,
            ("pipeline", "write _swap"): 0.3,
        },
        slowness_s=0.8,
        fault_strengths=(0.0, 0.2),
        machine_faults_per_s=0.4,
        chains_in_doubt=0.9,
    )


def _segments(random: Random) -> Load:
    """Segments are made, read, swept and deleted in haste, by slow uploads and slow reads."""
    configs = {"segment.bytes": "700", "segment.ms": "1500"}
    return Load(
        settings=_settings(
            random,
            age_ms=50,
            min_segment_bytes=1,
            splitter_claim_duration_ms=1000,
            interval_ms=300,
            grace_ms=random.choice([100, 800]),
            orphan_age_ms=random.choice([100, 400]),
            window_ms=50,
            max_bytes=8 << 20,
            parallel_uploads=4,
            cache_bytes=0,
        ),
        kept=configs,
        trimmed={**configs, "retention.bytes": "4000"},
        consumers=4,
        has_rereader=True,
        pipeline_pause_s=(0.05, 0.3),
        segment_sweep_every=1,
        slow_operations={
            ("", "SharedWrites"): 0.3,
            ("broker", "get_ranges"): 0.4,
            ("", "put_stream"): 0.1,
            ("broker", "put blocks"): 0.3,
        },
        slowness_s=1.5,
        damage=(0.0, 0.05),
        fault_strengths=(0.0, 0.2),
        machine_faults_per_s=0.4,
    )


def contended_rows(_seed: int, random: Random) -> Load:
    return _rows(random)


def late_chains(_seed: int, random: Random) -> Load:
    """Janitors chain the segments that runs have left, and their transactions always come late."""
    load = _rows(random)
    janitor = replace(load.settings.janitor, interval_ms=200)
    return replace(
        load,
        settings=replace(load.settings, janitor=janitor),
        slow_operations={**load.slow_operations, ("broker", "SharedWrites"): 1.0},
    )


def hasty_segments(_seed: int, random: Random) -> Load:
    return _segments(random)


def hasty_deletions(_seed: int, random: Random) -> Load:
    """Objects are replaced and deleted at once, and reads of blocks are slower than the grace."""
    load = _segments(random)
    settings = replace(
        load.settings, janitor=replace(load.settings.janitor, interval_ms=100, grace_ms=300)
    )
    return replace(
        load,
        settings=settings,
        slow_operations={("broker", "get_ranges"): 0.9},
        slowness_s=0.55,
        pipeline_pause_s=(0.05, 0.05),
        damage=(0.0,),
    )


def late_swaps(_seed: int, random: Random) -> Load:
    """The transactions of splits come late, and the sweeper does not wait for them."""
    load = _rows(random)
    janitor = replace(load.settings.janitor, interval_ms=200, orphan_age_ms=50)
    tiering = replace(load.settings.tiering, splitter_claim_duration_ms=6000)
    return replace(
        load,
        settings=replace(load.settings, janitor=janitor, tiering=tiering),
        slow_operations={("pipeline", "write _swap"): 1.0},
        slowness_s=1.5,
    )


def overtaking_uploads(_seed: int, random: Random) -> Load:
    """Bursts go into early blocks in succession, whose uploads overtake each other."""
    load = _everything(random)
    block = replace(load.settings.block, parallel_uploads=4, requests_per_second=1000)
    return replace(
        load,
        settings=replace(load.settings, block=block),
        in_flight=(None, 3),
        slow_operations={("broker", "put blocks"): 0.5},
        fault_strengths=(0.0, 0.3),
        machine_faults_per_s=0.4,
    )


def doubtful_commits(_seed: int, random: Random) -> Load:
    """Many requests arrive after their callers gave up. Machines stay up to settle their doubts."""
    return replace(_everything(random), fault_strengths=(5.0,), machine_faults_per_s=0.2)


def damaged_reads(_seed: int, random: Random) -> Load:
    """Every tenth answer of the store is damaged."""
    return replace(_segments(random), damage=(0.1,))


_LOADS: tuple[Callable[[Random], Load], ...] = (_everything, _rows, _segments, _machines)


def _configs(random: Random) -> dict[str, str]:
    return {
        "segment.bytes": str(random.choice([700, 2000, 1 << 20])),
        # Rows of a topic with the longer time stay in blocks, where splits go on joining them.
        "segment.ms": str(random.choice([1500, 60_000])),
    }


def _settings(random: Random, **chosen: int) -> Settings:
    def one_of(name: str, *values: int) -> int:
        drawn = random.choice(values)
        return chosen.get(name, drawn)

    return Settings(
        broker=BrokerSettings(lease_ms=chosen.get("lease_ms", 4000)),
        block=BlockSettings(
            window_ms=one_of("window_ms", 50, 150, 300),
            # A few batches fill the smaller of the two.
            max_bytes=one_of("max_bytes", 700, 8 << 20),
            retry_ms=2500,
            parallel_uploads=one_of("parallel_uploads", 1, 4),
            cache_bytes=one_of("cache_bytes", 0, 20_000),
            requests_per_second=one_of("requests_per_second", 0, 4, 1000),
        ),
        fetch=FetchSettings(poll_ms=500),
        remote=RemoteSettings(chunk_bytes=one_of("chunk_bytes", 512, 1 << 20)),
        tiering=TieringSettings(
            age_ms=one_of("age_ms", 50, 300),
            min_segment_bytes=one_of("min_segment_bytes", 1, 1500, 1 << 20),
            max_rows=one_of("max_rows", 1, 2, 6),
            task_bytes=2000,
            splitter_claim_duration_ms=one_of("splitter_claim_duration_ms", 300, 6000),
        ),
        janitor=JanitorSettings(
            interval_ms=one_of("interval_ms", 400, 1500),
            grace_ms=one_of("grace_ms", 100, 1500),
            # Readers of a deleted object are the danger, and a window would hide them.
            backup_window_ms=0,
            orphan_age_ms=one_of("orphan_age_ms", 400, 4000),
            unfinished_age_ms=one_of("unfinished_age_ms", 200, 4000),
            answers_ms=60_000,
        ),
    )
