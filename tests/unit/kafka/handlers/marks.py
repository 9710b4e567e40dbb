"""The watches of readers, without a control plane behind them."""

from stratalog.ids import TopicPartition
from stratalog.topic.watermarks import Watermarks


class Marks(Watermarks):
    """Watches that are stirred by hand. Nothing is known, and nothing polls."""

    def __init__(self) -> None:
        self._watches = {}
        self._known = {}
        self._told = {}
        self._left = {}

    @property
    def watched(self) -> list[TopicPartition]:
        return [partition for partition, watches in self._watches.items() if watches]
