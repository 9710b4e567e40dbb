"""`execute_each` has the effect of `execute`, however a database takes the rows."""

from uuid import uuid4

import pytest

from stratalog.control.log.model import PRODUCERS
from stratalog.control.sql.database import Connection, Database, Rows, as_uuid
from stratalog.ids import TopicId

_ROW = PRODUCERS.shape_without()
_TIME = PRODUCERS.shape("topic_id", "partition", "last_ms")
_INSERT = f"""
    {PRODUCERS.insert(_ROW)}
    ON CONFLICT (topic_id, partition, producer_id)
    DO UPDATE SET {PRODUCERS.overwrite("recent", "last_ms")}
"""
_MOVE = """
    UPDATE producers SET last_ms = producers.last_ms + r.last_ms FROM {rows}
    WHERE producers.topic_id = r.topic_id AND producers.partition = r.partition
"""
TOPIC = TopicId(uuid4())


@pytest.fixture(params=["one by one", "as a table"])
def is_each(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "one by one")


async def stored(database: Database) -> list[tuple[object, ...]]:
    rows = await database.read(
        lambda connection: connection.fetch(
            "SELECT topic_id, partition, producer_id, producer_epoch, recent, last_ms"
            " FROM producers ORDER BY partition"
        )
    )
    return [(as_uuid(row[0]), *row[1:4], bytes(row[4]), row[5]) for row in rows]


async def test_rows_are_inserted_overwritten_and_updated_as_in_a_set(
    database: Database, is_each: bool
) -> None:
    async def run(connection: Connection, sql: str, rows: Rows) -> None:
        if is_each:
            await connection.execute_each(sql, rows)
        else:
            await connection.execute(sql, rows=rows)

    async def work(connection: Connection) -> None:
        first = [(TOPIC, n, 7, 0, bytes([n, 255]), 100) for n in range(3)]
        await run(connection, _INSERT, Rows(_ROW, first))
        await run(connection, _INSERT, Rows(_ROW, [(TOPIC, 1, 7, 5, b"new", 200)]))
        await run(connection, _MOVE, Rows(_TIME, [(TOPIC, 0, 1), (TOPIC, 1, 2), (TOPIC, 9, 3)]))

    await database.write(work)
    assert await stored(database) == [
        (TOPIC, 0, 7, 0, b"\x00\xff", 101),
        (TOPIC, 1, 7, 0, b"new", 202),
        (TOPIC, 2, 7, 0, b"\x02\xff", 100),
    ]


async def test_no_rows_change_nothing(database: Database) -> None:
    await database.write(lambda connection: connection.execute_each(_INSERT, Rows(_ROW, [])))
    assert await stored(database) == []
