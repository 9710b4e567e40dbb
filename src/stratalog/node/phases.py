"""The phases in which a node stops. Within a phase, the part that started last stops first."""

from enum import IntEnum, auto


class Phase(IntEnum):
    """One step of stopping. A phase begins when all parts of the earlier phases have stopped."""

    END_BACKGROUND = auto()
    """Parts in the background end. No client waits for them, and they use most other parts."""
    WITHDRAW = auto()
    """The broker hands its groups over and leaves the cluster's list, so that clients turn to other
    brokers while this one still answers."""
    DRAIN = auto()
    """Requests that were accepted are answered, and connections close."""
    CLOSE_WRITERS = auto()
    """Writers commit the records that they have accepted. Until clients are drained, they may still
    be waiting for such a commit."""
    RELEASE = auto()
    """Caches, stores and the control plane close. Every phase before may use them."""
