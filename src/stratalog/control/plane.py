"""The control plane's interface: every question and every change, typed and async.

Times in answers come from the database's clock. Calls that may have taken effect although they
failed raise `OutcomeUnknownError`; calls that certainly did not raise `ControlUnavailableError`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from stratalog.control.group_model import (
    CommittedOffset,
    GroupOffsets,
    GroupRecord,
    GroupSummary,
    LeftOut,
)
from stratalog.control.model import (
    ActiveProducer,
    BlockToCommit,
    BrokerInfo,
    Cluster,
    CommitAnswer,
    Coordinates,
    EpochEnd,
    EpochQuery,
    FoundBatches,
    Lease,
    PartitionState,
    RecordsDeleted,
    Span,
    StoredObjectRow,
    TimeQuery,
    Topic,
)
from stratalog.control.pipeline_model import (
    AgedPartition,
    Claim,
    ClaimToken,
    ClaimWish,
    DeadObjects,
    ObjectCursor,
    Run,
    RunId,
    SplitOutcome,
    SplitToCommit,
    TierStatus,
)
from stratalog.control.scan_model import ScanSnapshot, ScanWish, SinkOutcome
from stratalog.control.segment_model import (
    ChainOutcome,
    EpochStart,
    Segment,
    SegmentToAdd,
    SegmentToBar,
    SegmentUploaded,
    TopicToAdopt,
)
from stratalog.errors import (
    CallError,
    DamagedError,
    OutcomeUnknownError,
    RetriableError,
    StaleError,
)
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    SegmentId,
    TopicId,
    TopicPartition,
)


class ControlUnavailableError(RetriableError):
    """The database did not answer, or aborted the transaction. Nothing was changed."""


class CommitInDoubtError(OutcomeUnknownError):
    """The connection was lost while the database committed: the change may be there or not."""


class ControlAccessError(CallError):
    """The database refuses us: address, credentials, permissions."""


class NoControlPlaneError(CallError):
    """There is nothing at the address, and nobody asked for a new control plane."""


class ControlDamagedError(DamagedError):
    """The database file is not one, or is broken."""


class TopicExistsError(CallError):
    """A topic of this name exists."""


class UnknownTopicError(StaleError):
    """No topic of this name or id exists (any more)."""


class PartitionCountError(CallError):
    """Partitions can only be added."""


class OffsetOutOfRangeError(CallError):
    """The offset lies outside the partition."""


class BarredObjectError(CallError):
    """A tombstone stands under this object id: its commit was given up, for ever."""


class CommitMismatchError(CallError):
    """Only some of these objects are known: they do not come from one `commit_blocks`."""


class AnswersForgottenError(StaleError):
    """The commit took effect so long ago that its answers are gone."""


class LeaseExpiredError(StaleError):
    """The lease ran out: what it protected may be gone."""


class BrokerIdTakenError(CallError):
    """Another live broker has this id."""


class NotCoordinatorError(StaleError):
    """Another broker coordinates this group (now): find out which, and ask that one."""


class SegmentStateError(StaleError):
    """The segment is not in a state from which this step is allowed."""


class BoundaryMovedError(StaleError):
    """The partition's boundaries are not (any more) where this change expects them."""


class ClaimLostError(StaleError):
    """The claim expired, and somebody else may work on its range."""


class MigrationRefusedError(CallError):
    """The partition is in a state from which this migration step is not allowed."""


class SinkBehindError(CallError):
    """The sink has taken later batches already, or other rows as this one: it belongs to another
    history."""


class SinkRefusedError(CallError):
    """Not every batch of the write can be taken, so none was."""


class ControlPlane(Protocol):
    @property
    def url(self) -> str:
        """The address without any secret in it, for people."""

    async def close(self) -> None: ...

    # The cluster.

    async def cluster(self) -> Cluster: ...

    async def next_generation(self) -> Cluster:
        """Raise the generation by one and return the new value."""

    async def note_segments_apart(self, apart: bool, *, moved: bool = False) -> bool:
        """Note whether the cluster's own segments lie in a store apart from its blocks, and return
        what is noted. Once there are any, or claims under which there soon may be, the first note
        stays, unless they were `moved`."""

    # Brokers.

    async def register_broker(
        self,
        broker_id: BrokerId | None,
        *,
        host: str,
        port: int,
        rack: str | None,
        incarnation: UUID,
        lease_ms: int,
    ) -> BrokerInfo:
        """Take `broker_id`, or the lowest id that no live broker holds.

        A broker registered at the same address is dead, whatever its lease says, and is removed.
        """

    async def renew_broker(self, broker_id: BrokerId, incarnation: UUID, *, lease_ms: int) -> bool:
        """Extend the lease. False if the id was lost to another incarnation."""

    async def remove_broker(self, broker_id: BrokerId, incarnation: UUID) -> None: ...

    async def brokers(self) -> list[BrokerInfo]:
        """All brokers ever registered and not removed, live or not, by id."""

    # Topics.

    async def create_topic(
        self, name: str, *, partition_count: int, configs: Mapping[str, str]
    ) -> Topic: ...

    async def topics(self) -> list[Topic]:
        """All topics, by name."""

    async def topics_named(self, names: Sequence[str]) -> list[Topic]:
        """Those of the names that exist, in no particular order."""

    async def topics_with_ids(self, ids: Sequence[TopicId]) -> list[Topic]: ...

    async def add_partitions(self, topic_id: TopicId, *, partition_count: int) -> Topic:
        """Grow the topic to `partition_count`."""

    async def set_configs(self, topic_id: TopicId, changes: Mapping[str, str | None]) -> Topic:
        """Set or, with None, unset configs."""

    async def delete_topic(self, topic_id: TopicId) -> None:
        """Hide the topic at once; `purge_deleted_topics` takes its rows away in chunks."""

    async def purge_deleted_topics(self, *, max_rows: int) -> int:
        """Remove up to `max_rows` coordinates of deleted topics. 0 means that none are left."""

    # Partitions.

    async def partitions(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """The state of those partitions that exist."""

    async def topic_partitions(self, topic_id: TopicId) -> list[PartitionState]:
        """The state of all partitions of a topic, by index."""

    async def high_watermarks(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]: ...

    # Writing.

    async def commit_blocks(self, blocks: Sequence[BlockToCommit]) -> list[list[CommitAnswer]]:
        """Commit uploaded objects in one transaction: an answer per batch, in the blocks' order.

        A commit that took effect already is answered again from what it left behind. Raises
        `BarredObjectError` if one of the objects was given up before.
        """

    async def resolve_commit(
        self, blocks: Sequence[BlockToCommit]
    ) -> list[list[CommitAnswer]] | None:
        """Settle the doubt about a `commit_blocks` whose outcome is unknown.

        Returns its answers if it took effect. Otherwise it bars the objects, so that the commit
        cannot take effect any more, and returns None. Raises `AnswersForgottenError` if it took
        effect longer ago than answers are kept.
        """

    async def forget_answers(self, *, older_than_ms: int) -> int:
        """Drop answers of commits of at least this age: nobody is in doubt about them any more."""

    # Producers.

    async def allocate_producer_ids(self, count: int) -> ProducerId:
        """Reserve `count` ids and return the first."""

    async def expire_producers(self, *, idle_ms: int, max_rows: int) -> int:
        """Forget the sequences of producers that wrote nothing for so long; return how many."""

    async def active_producers(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that are remembered on each partition, by id."""

    # Reading.

    async def find_batches(self, spans: Sequence[Span]) -> list[FoundBatches]:
        """Rows for each span until its `max_bytes` is crossed (the crossing row included).

        An answer about many tiny rows ends earlier; the reader asks again from where it ends.
        """

    async def find_by_time(
        self, queries: Sequence[TimeQuery]
    ) -> list[Segment | Coordinates | None]:
        """For each query the first segment or row, by offset, whose newest record is not older
        than asked. Segments that end below `log_start` do not count."""

    async def find_newest(
        self, wanted: Sequence[TopicPartition]
    ) -> list[Segment | Coordinates | None]:
        """For each partition the first segment or row that holds its greatest timestamp."""

    async def epoch_ends(self, queries: Sequence[EpochQuery]) -> list[EpochEnd | None]:
        """For each query where its epoch ended, or None if there is no such partition."""

    # Deleting.

    async def delete_records(
        self, targets: Mapping[TopicPartition, Offset]
    ) -> list[RecordsDeleted]:
        """Raise `log_start`; offset -1 means the high watermark.

        Raises `OffsetOutOfRangeError` or `UnknownTopicError` and then changes nothing.
        """

    async def enforce_retention(
        self,
        partition: TopicPartition,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> int:
        """Delete up to `max_rows` segments and rows that are too old or too many; return how many.

        Segments go first, because they are older: they are unchained, and `doomed_segments` takes
        it from there.

        Rows that an interrupted deletion left behind go first, also without any limit set, so
        every partition wants a call now and then.
        """

    # Objects.

    async def marked_objects(
        self, *, grace_ms: int, limit: int, after: StoredObjectRow | None = None
    ) -> list[StoredObjectRow]:
        """Objects marked longer ago than the grace period, and before every live lease began.
        Oldest first; those that come after `after`."""

    async def forget_objects(self, ids: Sequence[ObjectId]) -> None:
        """Remove the rows of marked objects that are gone from the store."""

    async def bar_objects(self, objects: Mapping[ObjectId, str]) -> set[ObjectId]:
        """Put tombstones under those ids (with their keys) that have no row; return which.

        Ids that already carry a tombstone, or whose object was deleted, are returned too: what
        the store holds under their keys may be deleted.
        """

    async def object_sizes(self, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        """With their footers, of those that are in the store: live and marked ones."""

    async def objects(self, *, after: ObjectId | None = None, limit: int) -> list[StoredObjectRow]:
        """Live and marked objects in id order, for `fsck`."""

    async def all_coordinates(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Coordinates]:
        """A partition's rows in offset order, for `fsck`.

        Rows that end below `block_start` wait for their deletion; no read is sent to them.
        """

    # Segments: the SQL implementation of `segment.metadata.SegmentMetadata`, and the chain.

    async def add_segment(self, segment: SegmentToAdd) -> None:
        """Note that a segment is about to be uploaded. The same one may be added again.

        Raises `SegmentStateError` if its deletion has begun, or the sweeper has barred its id.
        """

    async def bar_segments(self, segments: Mapping[SegmentId, SegmentToBar]) -> set[SegmentId]:
        """Put tombstones under those ids that have no row; return which.

        A tombstone is a segment whose deletion has begun: `add_segment` is refused, and
        `doomed_segments` hands out its keys. With its objects gone it is forgotten like any other,
        so whoever adds a segment after its upload looks for its objects once more.
        """

    async def finish_segment(self, segment_id: SegmentId, uploaded: SegmentUploaded) -> None:
        """Note that all objects of the segment are in the store. May be repeated.

        Raises `SegmentStateError` if its deletion has begun, or nothing is known of it (any more).
        """

    async def replace_segment_upload(
        self, segment_id: SegmentId, uploaded: SegmentUploaded
    ) -> None:
        """Note that objects of a finished segment of ours were put anew, for a repair.

        Raises `SegmentStateError` if it is not finished, belongs to somebody else, or its
        deletion has begun.
        """

    async def chain_segment(
        self, segment_id: SegmentId, *, claim: ClaimToken | None = None
    ) -> ChainOutcome:
        """Make a finished segment the next one of its partition, in one transaction.

        With a claim, only while that claim is held: `ClaimLostError` otherwise.

        Moves `remote_end` behind it and, if its offsets were served by blocks until now,
        `block_start` too; their rows leave in chunks afterwards. A segment that was chained before
        is answered in the same way again. One that retention or a delete has overtaken wholly is
        not chained, and its deletion begins. Raises `BoundaryMovedError` if it does not
        fit at `remote_end`, and `SegmentStateError` if it is not finished.
        """

    async def delete_segments(self, ids: Sequence[SegmentId]) -> None:
        """Begin the deletion of segments that are not chained. Chained ones are left alone."""

    async def doomed_segments(
        self, *, grace_ms: int, limit: int, after: Segment | None = None
    ) -> list[Segment]:
        """Segments whose deletion began longer ago than the grace period, and before every live
        lease began. Oldest first; those that come after `after`."""

    async def forget_segments(self, ids: Sequence[SegmentId]) -> None:
        """Finish the deletion of segments whose objects are gone from the store."""

    async def unchained_segments(self, *, older_than_ms: int, limit: int) -> list[Segment]:
        """Segments that were added so long ago and are neither chained nor being deleted."""

    async def segments(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Segment]:
        """The chained segments of a partition that end after `after`, in offset order."""

    async def all_segments(self, *, after: SegmentId | None = None, limit: int) -> list[Segment]:
        """Every segment that is known, whatever its state, in id order."""

    async def known_segments(self, ids: Sequence[SegmentId]) -> set[SegmentId]:
        """Those of the ids that have a row, whatever its state. Ids are never used again."""

    async def find_segment(
        self, partition: TopicPartition, epoch: LeaderEpoch, offset: Offset
    ) -> Segment | None:
        """The chained segment that holds this offset, if it was written in this epoch."""

    async def own_segments(self, topic_id: TopicId) -> int:
        """Take ownership of a topic's adopted segments: from now on their objects are deleted
        when they expire. Return how many there were."""

    async def mark_exported(self, topic_id: TopicId) -> None:
        """Note that Kafka is told of a topic's segments, before it is. May be repeated."""

    async def shared_topics(self, ids: Sequence[TopicId]) -> set[TopicId]:
        """Those of the topics of which Kafka may have put segments beside ours: those that were
        exported and, once one was, those that are not known here."""

    # Adoption and migration. See docs/tiering.md for the states.

    async def adopt_topic(self, topic: TopicToAdopt) -> Topic:
        """Create a topic with this id whose records are in the segments of another cluster.

        Its partitions are TIERED_ONLY: readable, not written to. Raises `TopicExistsError` if the
        name or the id is taken.
        """

    async def begin_migration(self, topic_id: TopicId) -> None:
        """TIERED_ONLY to MIGRATING, all partitions. May be repeated."""

    async def abort_migration(self, topic_id: TopicId) -> None:
        """MIGRATING back to TIERED_ONLY, while nothing was switched. May be repeated."""

    async def switch_to_blocks(self, topic_id: TopicId) -> None:
        """MIGRATING to HYBRID: from here on appends go into blocks, in a new leader epoch.

        Every partition's `block_start` becomes its high watermark. May be repeated. Raises
        `MigrationRefusedError` if a partition has not begun to migrate.
        """

    async def epochs(self, partition: TopicPartition) -> list[EpochStart]:
        """All leader epochs of a partition, in order, for the leader-epoch checkpoint."""

    # The pipeline. Runs claim ranges of partitions, work on them without the control plane, and
    # commit under the claim's token. All times are the database's.

    async def aged_partitions(self, ages_ms: Mapping[TopicId, int]) -> list[AgedPartition]:
        """The partitions of these topics that have rows committed longer ago than the topic's age
        and below `last_stable`, and write to blocks. Of a triggered one, all that was committed
        before the trigger has aged, too; the answer says when that was. What is claimed is answered
        like the rest, and said to be; so are those of paused topics, without a look at more than
        their first row."""

    async def claim_ranges(
        self,
        run_id: RunId,
        wishes: Sequence[ClaimWish],
        *,
        duration_ms: int,
        max_attempts: int,
        also_parked: bool = False,
    ) -> list[Claim]:
        """Claim those of the ranges that nobody else holds now; one claim per partition.

        A claim that expired after its work had begun counts as a failure of the run that had it,
        and parks the partition if it was one too many. What this run holds already it gets anew,
        under another token, so that it may ask again when the outcome is unknown. With
        `also_parked` parked partitions are claimed, too, a few times at the most; they remain
        parked.
        """

    async def renew_claims(self, run_id: RunId, *, duration_ms: int) -> set[ClaimToken]:
        """Extend the claims of a run that have not expired; return them."""

    async def begin_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Note that the work under these claims begins: from now on the silence of their holder
        counts. Those that are lost are left alone."""

    async def release_claims(self, tokens: Sequence[ClaimToken], *, succeeded: bool = True) -> None:
        """Give claims back. After success the failures of partitions that are not parked are
        forgotten; otherwise they are as before the claim."""

    async def put_back_claims(self, tokens: Sequence[ClaimToken]) -> None:
        """Give claims back after a failure that is not counted. That it was is noted, until they
        succeed: others are to have their turn before."""

    async def fail_claims(
        self, errors: Mapping[ClaimToken, str], *, max_attempts: int
    ) -> list[TopicPartition]:
        """Give claims back after failure, note and count it; return the partitions that this
        parks."""

    async def unpark(self, topic_id: TopicId, partition: PartitionIndex | None = None) -> int:
        """Let parked partitions be worked on again."""

    async def commit_split(self, split: SplitToCommit) -> list[SplitOutcome]:
        """Swap the planned rows of each part for its new rows, if exactly those are still there.

        Several transactions of a few parts each, so that no head is held for long; the object's
        row is inserted with the first part that fits. A part that does not fit is left out, and
        costs the others nothing. Repeating it swaps what is left, and answers SWAPPED for parts
        whose new rows are there; so who does not know the outcome asks again. Old objects that lose
        their last row are marked. Raises `BarredObjectError` if the sweeper was faster. Whatever
        the outcome, the object is left to the control plane or to the sweeper.
        """

    async def mostly_dead_objects(
        self,
        *,
        older_than_ms: int,
        max_live_part: float,
        stuck_for_ms: int,
        limit: int,
        after: ObjectCursor | None = None,
    ) -> DeadObjects:
        """Of the next `limit` live objects after the cursor, the oldest first, those of which no
        more than this part is still referred to by rows. Those that were noted as stuck are left
        out for `stuck_for_ms`.

        What a call costs is bounded by the objects that it looks at, whatever it finds. An object
        that is committed behind the cursor meanwhile is found by the next walk from the start.
        """

    async def resting_rows(
        self, *, max_file_bytes: int, more_than: int, stuck_for_ms: int, limit: int
    ) -> list[Coordinates]:
        """What partitions that are parked, or whose topic is paused, have in split files of no more
        than so many bytes, by partition and offset. Nothing, unless one of them has more rows there
        than `more_than`, or there are more such files. Files that were noted as stuck are left
        out for `stuck_for_ms`."""

    async def note_stuck(self, ids: Sequence[ObjectId]) -> None:
        """Remember that what is alive in these objects could not be moved out of them now."""

    async def coordinates_in(self, ids: Sequence[ObjectId]) -> list[Coordinates]:
        """All rows that refer to these objects, by partition and offset. Rows that wait for their
        deletion are left out."""

    async def begin_run(self, holder: str) -> Run:
        """Open an entry in the history of runs, which keeps the newest few thousand."""

    async def save_run(
        self, run_id: RunId, report: Mapping[str, object], *, finished: bool
    ) -> None: ...

    async def runs(self, *, limit: int) -> list[Run]:
        """The newest first."""

    async def pause_pipeline(self, topic_id: TopicId) -> None:
        """Convert nothing of the topic from now on. What is claimed already is finished."""

    async def resume_pipeline(self, topic_id: TopicId) -> None: ...

    async def trigger_pipeline(self, topic_id: TopicId) -> bool:
        """Have all that is there now converted, whatever its age and however little it is. The
        trigger ends when that is done; what is written later waits as always.

        Returns whether that begins now: a paused topic waits until it is resumed."""

    async def tier_status(self, ages_ms: Mapping[TopicId, int]) -> list[TierStatus]:
        """Of those of the topics that exist, by id. Eligible is what has aged, also in topics that
        are paused and partitions that are parked."""

    # Leases.

    async def take_lease(self, holder: str, *, duration_ms: int) -> Lease: ...

    async def renew_lease(self, lease_id: UUID, *, duration_ms: int) -> Lease:
        """Raises `StaleError` if it has expired."""

    async def release_lease(self, lease_id: UUID) -> None: ...

    # Scans and sinks.

    async def take_snapshot(
        self, wishes: Sequence[ScanWish], *, holder: str, duration_ms: int
    ) -> ScanSnapshot:
        """Take a lease, and then, from one snapshot, all coordinates of the wished ranges.

        The lease comes first: what is there after its start is not deleted before its end.
        """

    async def commit_sink(
        self,
        sink_id: str,
        batch_id: int,
        blocks: Sequence[BlockToCommit],
        *,
        from_stream: bool = False,
    ) -> SinkOutcome:
        """Commit uploaded objects once for this batch of this sink, all of them or none.

        One transaction with the note of the sink's last batch, which is kept for ever. May be
        repeated whenever its outcome is not known. Raises `SinkBehindError` if the sink has taken a
        later batch, or this one with another number of records (if it is `from_stream`, only if it
        is the first and has more), `SinkRefusedError` if a partition does not exist or is not
        written to in blocks, and `BarredObjectError` if the sweeper has given up one of the
        objects.
        """

    async def last_sink_batch(self, sink_id: str) -> int | None:
        """The number of the batch that the sink has taken last. It only grows."""

    async def oldest_lease_ms(self) -> int | None:
        """When the oldest of the live leases began."""

    # Groups. A group has one coordinator: a broker that is alive, with a term that fences all
    # that its predecessors may still write.

    async def locate_group(self, group_id: str, preferred: BrokerId) -> BrokerInfo:
        """The group's coordinator if that broker is alive. Otherwise `preferred` becomes it."""

    async def open_group(
        self, group_id: str, broker_id: BrokerId, incarnation: UUID
    ) -> GroupRecord:
        """What is known of a group, for its coordinator. A group that nobody knows is a new one.

        Raises `NotCoordinatorError` if another live broker, or another incarnation, has it.
        """

    async def save_group(self, record: GroupRecord) -> None:
        """Keep the group's new state. Raises `NotCoordinatorError` if its term is over."""

    async def delete_group(self, group_id: str, term: int) -> None:
        """Forget the group and its offsets. Raises `NotCoordinatorError` if the term is over."""

    async def groups(self) -> list[GroupSummary]:
        """All groups, by id."""

    async def commit_group_offsets(self, commits: Sequence[GroupOffsets]) -> list[LeftOut | None]:
        """Store offsets of several groups in one transaction; None for those whose term is over.

        Offsets of topics that do not exist (any more) are left out, and that is told: who
        committed them may mean another topic of the same name.
        """

    async def group_offsets(
        self, group_id: str, wanted: Sequence[TopicPartition] | None
    ) -> list[CommittedOffset]:
        """The committed offsets of a group, of some partitions or of all."""

    async def delete_group_offsets(
        self, group_id: str, term: int, partitions: Sequence[TopicPartition]
    ) -> None: ...

    async def expire_group_offsets(self, *, retention_ms: int, max_rows: int) -> int:
        """Delete offsets of groups that have been empty for longer, and groups left with none."""
