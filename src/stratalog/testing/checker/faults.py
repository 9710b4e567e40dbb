"""Faults of a run, planned from a seed.

Three streams of faults run side by side. One stops processes (killed, paused), the second one
breaks networks (clients, database, object store), and the third one makes disasters, one after the
other. So a broker may be killed while its database is away and the store hangs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    AWAY = "away"
    DEAF = "lost replies"
    STALL = "stall"
    HANG = "hang"
    """The store takes requests and answers none, for longer than a block is retried."""
    EMPTIED = "emptied"
    """Another store, an empty one, stands where the cluster's store was."""
    EAGER = "aggressive janitor"
    """All brokers delete without any grace, and sweep without any age."""
    ODD = "other settings"
    """One broker deletes everything as soon as it can, by settings that the cluster does not
    share."""
    BACK = "gone back"
    """The control plane goes back to an earlier state under brokers that run, and later returns."""
    HOSTILE = "hostile client"
    """A client sends damaged batches, random bytes and requests without measure."""


class Target(StrEnum):
    PROCESS = "process"
    CLIENTS = "clients"
    CONTROL = "database"
    OBJECTS = "object store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at_s: float
    """Seconds since the start of the run."""
    seconds: float
    """The duration of the fault."""
    kind: Kind
    target: Target
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        whom = ", ".join(map(str, self.brokers))
        return f"{self.kind} {self.target} of broker {whom} for {self.seconds:.1f} s"


DISASTERS: Mapping[Kind, tuple[Target, tuple[float, float]]] = {
    Kind.HANG: (Target.OBJECTS, (16.0, 20.0)),
    Kind.EMPTIED: (Target.OBJECTS, (3.0, 8.0)),
    Kind.EAGER: (Target.PROCESS, (4.0, 12.0)),
    Kind.ODD: (Target.PROCESS, (4.0, 12.0)),
    Kind.BACK: (Target.CONTROL, (1.0, 5.0)),
    Kind.HOSTILE: (Target.CLIENTS, (3.0, 10.0)),
}
"""The target of each disaster, and the seconds that it lasts. A hang is longer than the
`block.retry_ms` of the run's brokers."""

_PROCESS_KINDS = (Kind.KILL, Kind.KILL, Kind.PAUSE)
_NETWORK_KINDS = (Kind.CUT, Kind.AWAY, Kind.DEAF, Kind.STALL)
_MEAN_PAUSE_S = 2.0
_MAX_SECONDS = 4.0
_ALL_BROKERS_CHANCE = 0.3
_MEAN_RESPITE_S = 4.0
"""Between two disasters."""


def plan(
    seed: int,
    seconds: float,
    *,
    brokers: int,
    targets: Sequence[Target],
    disasters: Sequence[Kind] = (),
) -> list[Fault]:
    """Plan the faults of a run, in the order in which they begin. A seed gives the same plan."""
    networks = [target for target in targets if target is not Target.PROCESS]
    streams = []
    if Target.PROCESS in targets:
        streams.append(_stream(Random(f"{seed} process"), seconds, brokers, _PROCESS_KINDS, None))
    if networks:
        stream = _stream(Random(f"{seed} network"), seconds, brokers, _NETWORK_KINDS, networks)
        streams.append(stream)
    if disasters:
        streams.append(_disasters(Random(f"{seed} disasters"), seconds, brokers, disasters))
    return sorted((fault for stream in streams for fault in stream), key=lambda fault: fault.at_s)


def _stream(
    random: Random,
    seconds: float,
    brokers: int,
    kinds: Sequence[Kind],
    networks: Sequence[Target] | None,
) -> Iterator[Fault]:
    at_s = random.uniform(0.5, _MEAN_PAUSE_S)
    while at_s < seconds:
        kind = random.choice(kinds)
        everybody = random.random() < _ALL_BROKERS_CHANCE
        fault = Fault(
            at_s=at_s,
            seconds=0.0 if kind is Kind.CUT else random.uniform(0.2, _MAX_SECONDS),
            kind=kind,
            target=random.choice(networks) if networks else Target.PROCESS,
            brokers=tuple(range(brokers)) if everybody else (random.randrange(brokers),),
        )
        yield fault
        at_s += fault.seconds + random.expovariate(1 / _MEAN_PAUSE_S)


def _disasters(
    random: Random, seconds: float, brokers: int, kinds: Sequence[Kind]
) -> Iterator[Fault]:
    """One after the other, each kind as often as the others."""
    at_s = random.uniform(1.0, _MEAN_RESPITE_S)
    while True:
        for kind in random.sample(kinds, len(kinds)):
            target, lasts_s = DISASTERS[kind]
            if at_s >= seconds:
                return
            fault = Fault(
                at_s=at_s,
                seconds=random.uniform(*lasts_s),
                kind=kind,
                target=target,
                brokers=tuple(range(brokers)),
            )
            yield fault
            at_s += fault.seconds + random.expovariate(1 / _MEAN_RESPITE_S)
