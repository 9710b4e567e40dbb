"""Appending to partitions: batches of producers are checked here, once, and handed to a tier.

A bad batch fails its partition in the answer and nothing else. The commit makes the checks that
need shared state: sequences, epochs, and whether the partition still exists.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias

from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType
from stratalog.block.errors import BlockFailedError
from stratalog.block.placed import Placed
from stratalog.block.sealing import NO_CONNECTION
from stratalog.clock import Clock
from stratalog.control.log.model import CommitAnswer, CommitOutcome, WriteTier
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError, TopicConfigError
from stratalog.ids import NO_OFFSET
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

    def append(self, batches: Sequence[EntryBatch], sender: int) -> Placed:
        """Give the batches of a sender their place in the order of appends."""
        ...

    def refused(self, batches: Sequence[EntryBatch]) -> None:
        """Note batches that got no place in that order, because their tier is not known."""
        ...


class _Part(NamedTuple):
    """One partition's part of a request: batches to write, or the reason to refuse them."""

    write: PartitionWrite
    config: TopicConfig
    batches: Checked

    @property
    def is_refused(self) -> bool:
        return isinstance(self.batches, StratalogError)


class _Appended(NamedTuple):
    """The parts of a request that went to one tier, and the answers to come."""

    parts: Sequence[int]
    """The positions of these parts in the request."""
    placed: Placed


class PendingAppend:
    """Writes that have their place in the order of appends and may not be durable yet."""

    __slots__ = ("_appended", "_parts", "_topics", "done")

    def __init__(
        self, parts: Sequence[_Part], appended: Sequence[_Appended], topics: "TopicAppender"
    ) -> None:
        self._parts = parts
        self._appended = appended
        self._topics = topics
        self.done = _all_done([one.placed.committed for one in appended])
        """Done when the writes are durable or refused. Never cancel it: it may be shared."""

    def answers(self) -> list[PartitionWritten]:
        """Return an answer for each write, in the order of the writes, when they are done."""
        written = [
            PartitionWritten(one.batches) if isinstance(one.batches, StratalogError) else _UNKNOWN
            for one in self._parts
        ]
        for places, placed in self._appended:
            try:
                answers = placed.answers()
            except StratalogError as error:
                for place in places:
                    written[place] = PartitionWritten(error)
                continue
            position = 0
            for place in places:
                part = self._parts[place]
                assert not isinstance(part.batches, StratalogError)
                end = position + len(part.batches)
                written[place] = self._topics.written(part, answers[position:end])
                position = end
        return written


_UNKNOWN = PartitionWritten()


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

    async def append(
        self, writes: Sequence[PartitionWrite], sender: int = NO_CONNECTION
    ) -> PendingAppend:
        """Check the writes and hand them to the tiers that their partitions write to.

        Returns when they have their place in the order of appends. The sender is the number of the
        client's connection.
        """
        begun = self.begin(writes, sender)
        return begun if isinstance(begun, PendingAppend) else await begun

    def begin(
        self, writes: Sequence[PartitionWrite], sender: int
    ) -> PendingAppend | Coroutine[Any, Any, PendingAppend]:
        """Append at once. Return a coroutine if that has to wait, for the control plane or for a
        thread that checks the batches."""
        entries = []
        now_ms = self._clock.now_ms()
        for write in writes:
            if self._refusal(write) is not None:
                return self._append_found(writes, sender)
            try:
                config = effective(self._defaults, write.topic.configs)
            except TopicConfigError:
                return self._append_found(writes, sender)
            entries.append(Entry(write, config, now_ms))
        checked = self._checks.check(entries)
        if isinstance(checked, list):
            return self._placed(map(_part, entries, checked), sender)
        return self._append_checked(entries, checked, sender)

    async def _append_checked(
        self,
        entries: Sequence[Entry],
        checked: Coroutine[Any, Any, list[Checked]],
        sender: int,
    ) -> PendingAppend:
        return self._placed(map(_part, entries, await checked), sender)

    async def _append_found(self, writes: Sequence[PartitionWrite], sender: int) -> PendingAppend:
        """Append writes of which at least one has to be looked up or refused."""
        refreshed: _Refreshed = {}
        found = [await self._found(write, refreshed) for write in writes]
        now_ms = self._clock.now_ms()
        entries = [Entry(one.write, one.config, now_ms) for one in found if not one.is_refused]
        checked = self._checks.check(entries)
        answers = iter(checked if isinstance(checked, list) else await checked)
        return self._placed(
            (one if one.is_refused else one._replace(batches=next(answers)) for one in found),
            sender,
        )

    def _placed(self, checked: Iterable[_Part], sender: int) -> PendingAppend:
        """Give the sound parts of a request their place in the order of appends."""
        parts = list(checked)
        places: dict[WriteTier, list[int]] = {}
        batches: dict[WriteTier, list[EntryBatch]] = {}
        for place, ((topic, partition, _), _, own) in enumerate(parts):
            if not isinstance(own, StratalogError):
                tier = topic.write_tier(partition)
                places.setdefault(tier, []).append(place)
                batches.setdefault(tier, []).extend(own)
        appended = [
            _Appended(own, self._appenders[tier].append(batches[tier], sender))
            for tier, own in places.items()
        ]
        return PendingAppend(parts, appended, self)

    def written(self, part: _Part, answers: Sequence[CommitAnswer]) -> PartitionWritten:
        """Translate the answers of a commit. A cached topic that they contradict is forgotten."""
        for answer in answers:
            if answer.outcome in _REJECTIONS:
                if any(one.outcome in _CONTRADICTIONS for one in answers):
                    self._catalog.forget(part.write.topic.id)
                return PartitionWritten(_rejection(part.write, answer.outcome))
        _, base_offset, append_time_ms, log_start, _ = answers[0]
        if part.config.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            append_time_ms = -1
        return PartitionWritten(None, max(base_offset, NO_OFFSET), append_time_ms, log_start)

    async def _found(self, write: PartitionWrite, refreshed: _Refreshed) -> _Part:
        """Find the partition that is written to, and the configs of its topic."""
        try:
            config = effective(self._defaults, write.topic.configs)
        except TopicConfigError as error:
            return _Part(write, effective({}, {}), error)
        try:
            return _Part(await self._writable(write, refreshed), config, [])
        except RetriableError as error:
            self._note_refused(write, config)
            return _Part(write, config, error)
        except StratalogError as error:
            return _Part(write, config, error)

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
        write = write._replace(topic=found)
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
        topic, partition, _ = write
        if not 0 <= partition < topic.partition_count:
            return _no_partition(write)
        if topic.write_tier(partition) not in self._appenders:
            return _rejection(write, CommitOutcome.WRONG_TIER)
        return None


def _no_partition(write: PartitionWrite) -> StratalogError:
    return UnknownTopicError(f"topic {write.topic.name!r} has no partition {write.partition}")


def _rejection(write: PartitionWrite, outcome: CommitOutcome) -> StratalogError:
    kind, reason = _REJECTIONS[outcome]
    name = write.topic.name
    return kind(f"{name}-{write.partition}: {reason.format(topic=name)}")


def _part(entry: Entry, checked: Checked) -> _Part:
    return _Part(entry.write, entry.config, checked)


def _all_done(commits: Sequence["asyncio.Future[Any]"]) -> "asyncio.Future[Any]":
    """One tier takes all parts of most requests. No tier takes any part of a refused one."""
    if len(commits) == 1:
        return commits[0]
    if commits:
        return asyncio.gather(*commits, return_exceptions=True)
    nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    nothing.set_result(None)
    return nothing
