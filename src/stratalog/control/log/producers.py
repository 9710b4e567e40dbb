"""Producers' last sequences: read and written by commits, forgotten when idle."""

from collections.abc import Iterable, Mapping, Sequence

from stratalog.control.keys import partition_key, partition_rows
from stratalog.control.ledger import Ledger
from stratalog.control.log.commit_plan import ProducerKey
from stratalog.control.log.model import ActiveProducer
from stratalog.control.log.sequences import ProducerState
from stratalog.control.sql.database import Connection, Rows, shape
from stratalog.ids import ProducerId, TopicPartition

_KEY = shape(position="integer", topic_id="uuid", partition="integer", producer_id="bigint")
_STATE = shape(
    topic_id="uuid",
    partition="integer",
    producer_id="bigint",
    producer_epoch="integer",
    recent="bytea",
    last_ms="bigint",
)


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
        # The age is tested again by the deletion: a commit may have just used the row.
        return await self._database.write(
            lambda connection: connection.execute(
                "WITH idle AS MATERIALIZED (SELECT topic_id, partition, producer_id FROM producers"
                " WHERE last_ms < {now_ms} - $1 LIMIT $2 {for_update_skip_locked})"
                " DELETE FROM producers WHERE last_ms < {now_ms} - $1 AND"
                " (topic_id, partition, producer_id) IN"
                " (SELECT topic_id, partition, producer_id FROM idle)",
                idle_ms,
                max_rows,
            )
        )

    async def active_producers(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that are remembered on each partition, by id."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT p.topic_id, p.partition, p.producer_id, p.producer_epoch, p.recent,"
                " p.last_ms FROM {rows} JOIN producers p ON p.topic_id = r.topic_id"
                " AND p.partition = r.partition ORDER BY p.producer_id",
                rows=partition_rows(set(wanted)),
            )
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
    rows = await connection.fetch(
        "SELECT r.position, p.producer_epoch, p.recent FROM {rows}"
        " JOIN producers p ON p.topic_id = r.topic_id AND p.partition = r.partition"
        " AND p.producer_id = r.producer_id",
        rows=Rows(_KEY, [(i, *key, producer_id) for i, (key, producer_id) in enumerate(wanted)]),
    )
    return {wanted[position]: ProducerState(epoch, recent) for position, epoch, recent in rows}


async def write_producers(
    connection: Connection, states: Mapping[ProducerKey, ProducerState]
) -> None:
    if not states:
        return
    await connection.execute(
        "INSERT INTO producers (topic_id, partition, producer_id, producer_epoch, recent, last_ms)"
        " SELECT topic_id, partition, producer_id, producer_epoch, recent, last_ms FROM {rows}"
        " WHERE true ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET"
        " producer_epoch = excluded.producer_epoch, recent = excluded.recent,"
        " last_ms = excluded.last_ms",
        rows=Rows(
            _STATE,
            [
                (
                    *partition,
                    producer_id,
                    state.epoch,
                    state.packed,
                    state.last.append_time_ms,
                )
                for (partition, producer_id), state in states.items()
            ],
        ),
    )
