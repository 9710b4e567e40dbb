"""A fetch session: the partitions that a consumer reads, kept between its fetches (KIP-227).

The consumer names a partition once, and again only when its offset changes. The answers name the
partitions with news only: records, a moved high watermark or log start, an error.

A partition is awake while there may be news of it. It goes to rest when its consumer is at its end
and has been answered so, and wakes when the consumer names it again or its watch is stirred. So a
fetch costs as much as there are changes, however many partitions its session has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stratalog.control.log.model import Span
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex, TopicPartition
from stratalog.kafka.fetches.request import FetchPartition, PlaceKey
from stratalog.kafka.wire.fetch_response import NO_PREFERRED_REPLICA, PartitionFetched
from stratalog.topic.watermarks import Watch

LAST_EPOCH = 2**31 - 1


@dataclass(slots=True, eq=False)
class Place:
    """One partition of a fetch: where its consumer reads, and the last answer about it."""

    key: PlaceKey
    asked: FetchPartition
    topic: Topic | None = None
    partition: TopicPartition | None = None
    """None until its topic is found."""
    sent_high_watermark: int = NO_OFFSET
    sent_log_start: int = NO_OFFSET

    def span(self) -> Span:
        assert self.partition is not None
        return Span(
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            offset=Offset(self.asked.fetch_offset),
            max_bytes=max(self.asked.partition_max_bytes, 0),
        )

    def located(self, topic: Topic | None) -> TopicPartition | None:
        self.topic = topic
        if topic is None:
            return None
        if self.partition is None or self.partition.topic_id != topic.id:
            return TopicPartition(topic.id, PartitionIndex(self.asked.partition))
        return self.partition

    def tell(self, fetched: PartitionFetched) -> bool:
        """Note an answer about this partition. False if the consumer knows all of it.

        After an error the high watermark counts as unknown, so that the end of the error is news.
        """
        high_watermark = NO_OFFSET if fetched.error_code else fetched.high_watermark
        is_news = (
            bool(fetched.parts or fetched.error_code)
            or fetched.preferred_replica != NO_PREFERRED_REPLICA
            or high_watermark != self.sent_high_watermark
            or fetched.log_start != self.sent_log_start
        )
        self.sent_high_watermark, self.sent_log_start = high_watermark, fetched.log_start
        return is_news


class FetchSession:
    def __init__(
        self, session_id: int, connection: int, watch: Watch, *, uses_ids: bool, opened_s: float
    ) -> None:
        self.id = session_id
        self.connection = connection
        self.epoch = 1
        """The epoch that the next fetch must have."""
        self.uses_ids = uses_ids
        self.watch = watch
        self.opened_s = opened_s
        self.used_s = opened_s
        self.held_bytes = 0
        self.is_in_use = False
        self._places: dict[PlaceKey, Place] = {}
        self._located: dict[TopicPartition, Place] = {}
        # A dictionary as an ordered set: the place that was answered longest ago comes first.
        self._awake: dict[Place, None] = {}
        self._view: object = None

    def __len__(self) -> int:
        return len(self._places)

    def update(
        self, asked: Mapping[PlaceKey, FetchPartition], forgotten: Iterable[PlaceKey] = ()
    ) -> None:
        for key, partition in asked.items():
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = Place(key, partition)
            place.asked = partition
            self._awake[place] = None
        for key in forgotten:
            place = self._places.pop(key, None)
            if place is not None:
                self._awake.pop(place, None)
                self.locate(place, None)

    def advance(self, now_s: float) -> None:
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        self.used_s = now_s

    def seen_as(self, view: object) -> None:
        """Wake all places if the consumer sees its partitions in another way than before."""
        if view != self._view:
            self._view = view
            self._awake.update(dict.fromkeys(self._places.values()))

    def locate(self, place: Place, topic: Topic | None) -> None:
        """Watch the partition of a place in the topic that was found."""
        partition = place.located(topic)
        if partition == place.partition:
            return
        if place.partition is not None:
            del self._located[place.partition]
            self.watch.remove(place.partition)
        if partition is not None:
            self._located[partition] = place
            self.watch.add(partition)
        place.partition = partition

    def awake(self, stirred: Iterable[TopicPartition]) -> list[Place]:
        """Wake the stirred partitions, and return the places that are awake, in fair order."""
        for partition in stirred:
            self._awake[self._located[partition]] = None
        return list(self._awake)

    def rest(self, place: Place) -> None:
        self._awake.pop(place, None)

    def move_back(self, place: Place) -> None:
        """Let the other partitions come first in the next answer."""
        if place in self._awake:
            del self._awake[place]
            self._awake[place] = None

    def close(self) -> None:
        self.watch.close()
        self._places.clear()
        self._located.clear()
        self._awake.clear()
