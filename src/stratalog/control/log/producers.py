"""Producers' last sequences: read and written by commits, forgotten when idle."""

from collections.abc import Iterable, Mapping, Sequence

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.commit_plan import ProducerKey
from stratalog.control.log.model import PRODUCERS, ActiveProducer
from stratalog.control.log.sequences import ProducerState
from stratalog.control.sql.database import Connection, Rows
from stratalog.ids import ProducerId, TopicPartition

_KEY = PRODUCERS.shape("topic_id", "partition", "producer_id", position="integer")
_STATE = PRODUCERS.shape_without()
_WRITE = f"""
    {PRODUCERS.insert(_STATE)}
    ON CONFLICT (topic_id, partition, producer_id)
    DO UPDATE SET {PRODUCERS.overwrite("producer_epoch", "recent", "last_ms")}
"""
_READ = """
    SELECT r.position, producers.producer_epoch, producers.recent FROM {rows}
    JOIN producers ON producers.topic_id = r.topic_id AND producers.partition = r.partition
        AND producers.producer_id = r.producer_id
"""
_ACTIVE = """
    SELECT producers.topic_id, producers.partition, producers.producer_id,
        producers.producer_epoch, producers.recent, producers.last_ms
    FROM {rows}
    JOIN producers ON producers.topic_id = r.topic_id AND producers.partition = r.partition
    ORDER BY producers.producer_id
"""
# The deletion tests the age again: a commit may have just used the row.
_EXPIRE = """
    WITH idle AS MATERIALIZED (
        SELECT topic_id, partition, producer_id FROM producers
        WHERE last_ms < {now_ms} - $1 LIMIT $2 {for_update_skip_locked}
    )
    DELETE FROM producers WHERE last_ms < {now_ms} - $1
        AND (topic_id, partition, producer_id) IN (
            SELECT topic_id, partition, producer_id FROM idle
        )
"""


class ProducerOperations(Ledger):
    async def allocate_producer_ids(self, count: int) -> ProducerId:
        """Reserve `count` ids and return the first."""

        async def work(connection: Connection) -> ProducerId:
            rows = await connection.fetch(
                "UPDATE cluster SET next_producer_id = next_producer_id + $1"
                " RETURNING next_producer_id",
                count,
            )
            return ProducerId(rows[0][0] - count)

        return await self._database.write(work)

    async def expire_producers(self, *, idle_ms: int, max_rows: int) -> int:
        """Forget the sequences of producers that wrote nothing for so long; return how many."""
        return await self._database.write(
            lambda connection: connection.execute(_EXPIRE, idle_ms, max_rows)
        )

    async def active_producers(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the producers that are remembered on each partition, by id."""
        rows = await self._database.read(
            lambda connection: connection.fetch(_ACTIVE, rows=partition_rows(set(wanted)))
        )
        found: dict[TopicPartition, list[ActiveProducer]] = {key: [] for key in wanted}
        for row in rows:
            _, _, producer_id, epoch, recent, last_ms = row
            last_sequence = ProducerState(epoch, recent).last.last_sequence
            found[partition_key(row)].append(
                ActiveProducer(ProducerId(producer_id), epoch, last_sequence, last_ms)
            )
        return found


async def read_producers(
    connection: Connection, keys: Iterable[ProducerKey]
) -> dict[ProducerKey, ProducerState]:
    wanted = list(keys)
    if not wanted:
        return {}
    source = [(*key, producer_id, i) for i, (key, producer_id) in enumerate(wanted)]
    rows = await connection.fetch(_READ, rows=Rows(_KEY, source))
    return {wanted[position]: ProducerState(epoch, recent) for position, epoch, recent in rows}


async def write_producers(
    connection: Connection, states: Mapping[ProducerKey, ProducerState]
) -> None:
    if not states:
        return
    values = [
        (*partition, producer_id, state.epoch, state.packed, state.last.append_time_ms)
        for (partition, producer_id), state in states.items()
    ]
    await connection.execute_each(_WRITE, Rows(_STATE, values))
