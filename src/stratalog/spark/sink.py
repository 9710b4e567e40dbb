"""Writing DataFrames into topics: straight into blocks, with one commit and without a broker.

The steps in their order, where each of them runs, and the state that a crash after it leaves:

1. Open, in a Python worker beside the driver: columns, options and topics are checked, and a lease
   is taken. A crash leaves a lease that runs out.
2. Write, on executors, any number of attempts of each task: rows are encoded and uploaded as blocks
   under fresh ids. An executor that dies before, during or after its uploads leaves objects that no
   commit names. So does an attempt that lost against another of the same task, because Spark lets
   both finish. No reader sees these objects, and the sweeper takes them.
3. Answer: Spark brings one message per task to the driver. A driver that dies here leaves objects
   as after step 2. A stream that is restarted runs the batch again, under the same number.
4. Commit, in a Python worker beside the driver: one transaction with all blocks of all tasks, and
   with a `sinkId` also the note that the sink has taken this batch. A crash during the commit
   leaves all or nothing. With a `sinkId` the driver need not know which, because the write may be
   run again.
5. Spark writes its commit log (a stream) or returns (a batch). A crash between steps 4 and 5 makes
   a stream repeat a batch that was committed. Steps 1 to 3 run, and the commit finds the note: it
   changes nothing, and the sweeper takes the new objects. Notes are kept for ever, apart from the
   objects and their rows, so that the repeat may come after the data was merged into segments, or
   deleted by retention. By then rows may be too old for their topic, so the commit judges times,
   and accepts all times of a repeat. A note has the number of records: `df.write` with another
   number is no repeat, and neither is a stream's first batch with more records. Later batches of a
   stream are recognised by their numbers, because a repeated query may find other rows.
6. The lease is released, and the writer that step 1 announced is ended. If that fails, the lease
   runs out, and the writer is forgotten later. An ended writer commits nothing more. Spark plans
   every batch, and every repeat of it, with a new writer, so each try has a living one.
   A commit that took effect before is recognised by its note or its objects, before its writer.

Without a `sinkId` there is no note. The commit itself is still all or nothing and happens once in
each run, but a repeated run writes the rows again: at least once.

The lease keeps the sweeper from all objects that were uploaded since the lease began, for
`leaseMs`, by default the setting `scan.lease_ms`. A write that takes longer may find its objects
barred, and then fails as a whole. Spark creates two writers for every batch of a stream. A query
that crashes again and again would leave leases each time, which also keep deleted data in the
store. So a stream takes leases only if the option `leaseMs` is set. Otherwise a batch has
`janitor.orphan_age_ms` from its first upload to its commit, an hour by default.

The address and the secrets of the object store travel to executors inside the pickled writer. The
control plane is opened from the settings file in steps 1 and 4 only, so that its address never
leaves the driver.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.opening.cluster import open_control
from stratalog.settings import Settings
from stratalog.spark.error_hints import hint_at_settings
from stratalog.spark.errors import OptionError, SinkError, SinkRowError
from stratalog.spark.outage_retry import OUTAGES, STREAM_RETRY_S, retry_for
from stratalog.spark.plain_errors import PlainErrors
from stratalog.spark.sink_columns import check_columns
from stratalog.spark.sink_commit import SinkCommitter
from stratalog.spark.sink_model import SinkMessage, SinkPlan
from stratalog.spark.sink_options import SinkOptions, batch_sink_options, stream_sink_options
from stratalog.spark.sink_origin import sink_origin
from stratalog.spark.sink_plan import plan_sink

Messages = Sequence[WriterCommitMessage | None]


def open_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Open a writer for `df.write`. Raises before a write that is not possible begins."""
    _refuse_overwrite(overwrite, 'a topic is only ever appended to: use mode("append")')
    parsed = batch_sink_options(options)
    check_columns(schema, has_topic=parsed.topic is not None)
    return BatchSink(parsed, asyncio.run(_plan(parsed, leased=True)))


def open_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Open a writer for `df.writeStream`. Spark opens one to write each batch, one to commit it."""
    _refuse_overwrite(overwrite, 'a topic is only ever appended to: use outputMode("append")')
    parsed = stream_sink_options(options)
    check_columns(schema, has_topic=parsed.topic is not None)
    leased = parsed.lease_ms is not None
    return StreamSink(parsed, asyncio.run(_plan(parsed, leased=leased, retry_s=STREAM_RETRY_S)))


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, plan: SinkPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        with PlainErrors():
            return _written(self._options, self._plan, iterator)

    def commit(self, messages: Messages) -> None:
        with PlainErrors():
            asyncio.run(_commit(self._options, self._options.batch_id, messages, self._plan))

    def abort(self, messages: Messages) -> None:
        with PlainErrors():
            asyncio.run(_abort(self._options, messages, self._plan))


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, plan: SinkPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        with PlainErrors():
            return _written(self._options, self._plan, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        with PlainErrors():
            asyncio.run(_commit(self._options, batchId, messages, self._plan, from_stream=True))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        del batchId
        with PlainErrors():
            asyncio.run(_abort(self._options, messages, self._plan))


def _refuse_overwrite(overwrite: bool, why: str) -> None:
    if overwrite:
        raise OptionError(f"mode: overwriting is not possible, {why}")


def _written(
    options: SinkOptions, plan: SinkPlan, batches: Iterable[pa.RecordBatch]
) -> SinkMessage:
    # Imported here, because only tasks need the compiled loops. A worker beside the driver would
    # load them each time.
    from stratalog.spark.sink_task import write_rows

    return write_rows(plan, batches, may_be_repeat=options.sink_id is not None)


async def _plan(options: SinkOptions, *, leased: bool, retry_s: float = 0) -> SinkPlan:
    async def planned() -> SinkPlan:
        async with _opened(options) as (control, settings):
            lease_ms = (options.lease_ms or settings.scan.lease_ms) if leased else None
            return await plan_sink(
                control, settings, options, clock=SYSTEM_CLOCK, lease_ms=lease_ms
            )

    return await retry_for(planned, retry_s, clock=SYSTEM_CLOCK, failures=OUTAGES)


async def _commit(
    options: SinkOptions,
    batch_id: int,
    messages: Messages,
    plan: SinkPlan,
    *,
    from_stream: bool = False,
) -> None:
    answers = [_answer(message) for message in messages]
    blocks = [block for answer in answers for block in answer.blocks]
    async with _opened(options, retry_s=STREAM_RETRY_S) as (control, settings):
        committer = SinkCommitter(control, clock=SYSTEM_CLOCK, retry_ms=settings.block.retry_ms)
        if options.sink_id is None:
            await committer.commit(blocks)
        else:
            await _refuse_unless_repeated(committer, options.sink_id, batch_id, answers)
            await committer.commit_once(
                options.sink_id,
                batch_id,
                blocks,
                from_stream=from_stream,
                origin=sink_origin(options) if from_stream else None,
            )
        await _release(control, answers, plan)


async def _refuse_unless_repeated(
    committer: SinkCommitter, sink_id: str, batch_id: int, answers: Iterable[SinkMessage]
) -> None:
    refusals = [answer.refusal for answer in answers if answer.refusal is not None]
    if refusals and not await committer.has_reached(sink_id, batch_id):
        raise SinkRowError(refusals[0])


async def _abort(options: SinkOptions, messages: Messages, plan: SinkPlan) -> None:
    """Release the lease. Tasks may still be uploading, so objects are left to the sweeper."""
    answers = [message for message in messages if isinstance(message, SinkMessage)]
    async with _opened(options) as (control, _):
        await _release(control, answers, plan)


async def _release(control: ControlPlane, answers: Sequence[SinkMessage], plan: SinkPlan) -> None:
    leases: set[UUID | None] = {plan.lease_id, *(answer.lease_id for answer in answers)}
    # A lease runs out by itself. A committed write must not fail because of its lease.
    with suppress(StratalogError):
        for lease_id in leases - {None}:
            assert lease_id is not None
            await control.scans.release_lease(lease_id)
        for tag in {plan.access.writer, *(answer.writer for answer in answers)} - {None}:
            assert tag is not None
            await control.writers.end(tag)


def _answer(message: WriterCommitMessage | None) -> SinkMessage:
    if not isinstance(message, SinkMessage):
        raise SinkError("Spark lost the answer of a task: nothing was written, run it again")
    return message


@asynccontextmanager
async def _opened(
    options: SinkOptions, *, retry_s: float = 0
) -> AsyncIterator[tuple[ControlPlane, Settings]]:
    settings = options.location.settings()
    with hint_at_settings(options.location):
        control = await retry_for(
            lambda: open_control(settings),
            retry_s,
            clock=SYSTEM_CLOCK,
            failures=OUTAGES,
        )
        try:
            yield control, settings
        finally:
            await control.close()
