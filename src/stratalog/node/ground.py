"""The ground that all parts of a node stand on: its settings and metrics, and the doors to time
and randomness."""

from dataclasses import dataclass, field

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.ids import Entropy, system_entropy
from stratalog.metrics import Metrics
from stratalog.node.fence import Fence
from stratalog.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    settings: Settings
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = system_entropy
    metrics: Metrics = field(default_factory=Metrics)
    fence: Fence = field(default_factory=Fence)
