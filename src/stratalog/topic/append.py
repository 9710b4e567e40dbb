"""Appending to partitions: batches of producers are checked here, once, and handed to a tier.

A bad batch fails its partition in the answer and nothing else. The commit makes the checks that
need shared state: sequences, epochs, and whether the partition still exists.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType
from stratalog.block.errors import BlockFailedError
from stratalog.clock import Clock
from stratalog.control.log.model import CommitAnswer, CommitOutcome, WriteTier
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import NO_OFFSET, TopicId
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.configs import TopicConfig, effective
from stratalog.topic.entry_checks import (
    Checked,
    Entry,
    EntryChecks,
    EntryLimits,
    check_headers,
)
from stratalog.topic.errors import (
    FencedProducerError,
    OutOfOrderSequenceError,
    ReadOnlyTopicError,
)
from stratalog.topic.model import PartitionWrite, PartitionWritten
from stratalog.topic_configs import TopicConfigError

_REJECTIONS: Mapping[CommitOutcome, tuple[type[StratalogError], str]] = {
    CommitOutcome.UNKNOWN_PARTITION: (UnknownTopicError, "the topic or partition is gone"),
    CommitOutcome.OUT_OF_ORDER_SEQUENCE: (
        OutOfOrderSequenceError,
        "a batch before this one is missing",
    ),
    CommitOutcome.FOLLOWS_MISSING: (
        BlockFailedError,
        "a batch before this one was given up; send them again in order",
    ),
    CommitOutcome.FENCED_PRODUCER: (
        FencedProducerError,
        "a newer instance of this producer has taken over",
    ),
    CommitOutcome.WRONG_TIER: (
        ReadOnlyTopicError,
        "the topic is read-only until it is migrated; run `stratalog topic migrate {topic}`",
    ),
}

_CONTRADICTIONS = (CommitOutcome.UNKNOWN_PARTITION, CommitOutcome.WRONG_TIER)
"""Answers of a commit that show that the cached topic is out of date."""


_Refreshed: TypeAlias = dict[str, Topic | RetriableError | None]
"""The topics that a request had to ask the control plane for, by name. None: it does not exist."""


class Appender(Protocol):
    """A tier that takes record batches in."""

    def append(self, batches: Sequence[EntryBatch]) -> "asyncio.Future[list[CommitAnswer]]":
        """Give the batches their place in the order of appends.

        The future has one answer for each batch, once all of them are durable.
        """
        ...

    def refused(self, batches: Sequence[EntryBatch]) -> None:
        """Note batches that got no place in that order, because their tier is not known."""
        ...


@dataclass(frozen=True, slots=True)
class _Checked:
    """One partition's part of a request: batches to write, or the reason to refuse them."""

    write: PartitionWrite
    config: TopicConfig
    batches: Sequence[EntryBatch] = ()
    error: StratalogError | None = None

    def with_answer(self, answer: Checked) -> "_Checked":
        if isinstance(answer, StratalogError):
            return _Checked(self.write, self.config, error=answer)
        return _Checked(self.write, self.config, answer)

    @property
    def write_tier(self) -> WriteTier:
        return self.write.topic.write_tier(self.write.partition)


@dataclass(frozen=True, slots=True)
class _Appended:
    """The parts of a request that went to one tier, and the answers to come."""

    places: Sequence[int]
    """The positions of these parts in the request."""
    answered: "asyncio.Future[list[CommitAnswer]]"


class PendingAppend:
    """Writes that have their place in the order of appends and may not be durable yet."""

    def __init__(
        self, checked: Sequence[_Checked], appended: Sequence[_Appended], topics: "TopicAppender"
    ) -> None:
        self._checked = checked
        self._appended = appended
        self._topics = topics

    async def answers(self) -> list[PartitionWritten]:
        """Wait until the writes are durable or refused; answers come in the order of writes."""
        written = [PartitionWritten(error=one.error) for one in self._checked]
        for part in self._appended:
            try:
                answers = iter(await part.answered)
            except StratalogError as error:
                for place in part.places:
                    written[place] = PartitionWritten(error=error)
                continue
            for place in part.places:
                one = self._checked[place]
                own = [next(answers) for _ in one.batches]
                self._topics.learn(one.write.topic.id, own)
                written[place] = _written(one, own)
        return written


class TopicAppender:
    def __init__(
        self,
        *,
        appenders: Mapping[WriteTier, Appender],
        catalog: TopicCatalog,
        clock: Clock,
        topic_defaults: Mapping[str, str],
        entry_limits: EntryLimits = EntryLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._appenders = appenders
        self._catalog = catalog
        self._clock = clock
        self._defaults = topic_defaults
        self._checks = EntryChecks(entry_limits)

    async def append(self, writes: Sequence[PartitionWrite]) -> PendingAppend:
        """Check the writes and hand them to the tiers that their partitions write to.

        Returns when they have their place in the order of appends.
        """
        refreshed: _Refreshed = {}
        found = [await self._found(write, refreshed) for write in writes]
        checked = await self._checked(found)
        places: dict[WriteTier, list[int]] = {}
        for place, one in enumerate(checked):
            if one.batches:
                places.setdefault(one.write_tier, []).append(place)
        return PendingAppend(
            checked, [self._append(checked, *each) for each in places.items()], self
        )

    def _append(
        self, checked: Sequence[_Checked], tier: WriteTier, places: Sequence[int]
    ) -> _Appended:
        batches = [batch for place in places for batch in checked[place].batches]
        return _Appended(places, self._appenders[tier].append(batches))

    def learn(self, topic_id: TopicId, answers: Sequence[CommitAnswer]) -> None:
        """Forget a cached topic that a commit contradicts."""
        if any(answer.outcome in _CONTRADICTIONS for answer in answers):
            self._catalog.forget(topic_id)

    async def _found(self, write: PartitionWrite, refreshed: _Refreshed) -> _Checked:
        """Find the partition that is written to, and the configs of its topic."""
        try:
            config = effective(self._defaults, write.topic.configs)
        except TopicConfigError as error:
            return _Checked(write, effective({}, {}), error=error)
        try:
            return _Checked(await self._writable(write, refreshed), config)
        except RetriableError as error:
            self._note_refused(write, config)
            return _Checked(write, config, error=error)
        except StratalogError as error:
            return _Checked(write, config, error=error)

    async def _checked(self, found: Sequence[_Checked]) -> list[_Checked]:
        """Check the batches of all partitions that were found."""
        now_ms = self._clock.now_ms()
        answers = iter(
            await self._checks.check(
                [Entry(one.write, one.config, now_ms) for one in found if one.error is None]
            )
        )
        return [one if one.error is not None else one.with_answer(next(answers)) for one in found]

    def _note_refused(self, write: PartitionWrite, config: TopicConfig) -> None:
        """Note the batches of a partition that could not be looked up.

        The look-up may succeed for the producer's next request, which must not take their place.
        """
        with suppress(StratalogError):
            batches = check_headers(Entry(write, config, self._clock.now_ms()))
            for appender in self._appenders.values():
                appender.refused(batches)

    async def _writable(self, write: PartitionWrite, refreshed: _Refreshed) -> PartitionWrite:
        """Decide whether the partition exists and is written to a tier of this broker.

        The topic's entry in the catalog decides. An entry that says no may be old: the topic may
        have grown or been migrated through another broker. Then the control plane is asked.
        """
        if self._refusal(write) is None:
            return write
        found = await self._refresh(write.topic.name, refreshed)
        if found is None or found.id != write.topic.id:
            raise _no_partition(write)
        write = replace(write, topic=found)
        refusal = self._refusal(write)
        if refusal is not None:
            raise refusal
        return write

    async def _refresh(self, name: str, refreshed: _Refreshed) -> Topic | None:
        """Ask the control plane for a topic, once for all the partitions of a request.

        A failure counts for all of them, too. Otherwise a request with many partitions would wait
        for a control plane that is away as many times, and so would the requests behind it.
        """
        if name not in refreshed:
            try:
                refreshed[name] = (await self._catalog.refreshed([name])).get(name)
            except RetriableError as error:
                refreshed[name] = error
        found = refreshed[name]
        if isinstance(found, RetriableError):
            raise found
        return found

    def _refusal(self, write: PartitionWrite) -> StratalogError | None:
        if not 0 <= write.partition < write.topic.partition_count:
            return _no_partition(write)
        if write.topic.write_tier(write.partition) not in self._appenders:
            return _rejection(write, CommitOutcome.WRONG_TIER)
        return None


def _no_partition(write: PartitionWrite) -> StratalogError:
    return UnknownTopicError(f"topic {write.topic.name!r} has no partition {write.partition}")


def _rejection(write: PartitionWrite, outcome: CommitOutcome) -> StratalogError:
    kind, reason = _REJECTIONS[outcome]
    name = write.topic.name
    return kind(f"{name}-{write.partition}: {reason.format(topic=name)}")


def _written(one: _Checked, answers: Sequence[CommitAnswer]) -> PartitionWritten:
    for answer in answers:
        if answer.outcome in _REJECTIONS:
            return PartitionWritten(error=_rejection(one.write, answer.outcome))
    first = answers[0]
    stamps = one.config.timestamp_type is TimestampType.LOG_APPEND_TIME
    return PartitionWritten(
        base_offset=first.base_offset if first.base_offset >= 0 else NO_OFFSET,
        append_time_ms=first.append_time_ms if stamps else -1,
        log_start=first.log_start,
    )
