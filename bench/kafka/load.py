"""The description of a load, as it goes to the process that makes it."""

import json
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

Config: TypeAlias = dict[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    kind: str
    """A key of `bench.kafka.client.KINDS`."""
    address: str
    places: list[tuple[str, int]]
    """Topics and partitions, which take turns."""
    amount: int
    """Records of each client, or seconds of rest."""
    record_bytes: int = 1024
    clients: int = 1
    """Clients in this one process."""
    passes: int = 1
    """How often the same records are read."""
    config: Config = field(default_factory=dict)
    """For librdkafka; everything else is its default."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Load":
        fields = json.loads(text)
        fields["places"] = [(topic, partition) for topic, partition in fields["places"]]
        return cls(**fields)
