"""A dispatcher whose topics and groups are in SQLite, and the requests that group tests send."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from kio.schema.errors import ErrorCode
from tests.support.ledgers import Call, ControlWrapper
from tests.unit.kafka.handlers.desk import (
    SESSION,
    Appends,
    Offsets,
    Reads,
    answered,
    framed,
    parsed,
)

from stratalog.admin.admin import BrokerAdmin
from stratalog.clock import SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.topics.model import Topic
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.kafka.fetches.sessions import FetchSessions
from stratalog.kafka.registry import dispatcher, served
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.metrics import RequestMetrics
from stratalog.kafka.server.read_failures import ReadFailures
from stratalog.kafka.server.work import Workplace
from stratalog.kafka.wire.api import ApiKey
from stratalog.metrics import Metrics
from stratalog.settings import GroupsSettings, Settings
from stratalog.topic.catalog import TopicCatalog

GROUP = "readers"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6events"
SETTINGS = Settings(groups=GroupsSettings(initial_rebalance_delay_ms=0))


_CUT_OFF = ("groups.offsets", "groups.save", "groups.open", "groups.locate")


class AwayControl(ControlWrapper):
    """A control plane that can be cut off from reading offsets and saving groups."""

    is_away = False

    async def around(self, name: str, call: Call) -> Any:
        if self.is_away and name in _CUT_OFF:
            raise ControlUnavailableError("away")
        return await call()


class GroupDesk:
    """A dispatcher whose topics and groups are in SQLite."""

    def __init__(self, control: AwayControl, membership: Membership) -> None:
        clock = SystemClock()
        self.control = control
        self.membership = membership
        self.groups = GroupCoordinator(control=control, membership=membership, clock=clock)
        catalog = TopicCatalog(control=control, clock=clock)
        consumer_groups = ConsumerGroups(self.groups, catalog, SETTINGS.groups, clock=clock)
        requests = RequestMetrics(Metrics(), served())
        components = Components(
            metrics=requests,
            failures=ReadFailures(clock),
            fetch_sessions=FetchSessions(SETTINGS, clock=clock, metrics=Metrics()),
            admin=BrokerAdmin(
                control=control,
                catalog=catalog,
                settings=SETTINGS,
                membership=membership,
                groups=self.groups,
                consumer_groups=consumer_groups,
            ),
            settings=SETTINGS,
            membership=membership,
            control=control,
            catalog=catalog,
            appender=Appends(),
            reader=Reads(),
            offsets=Offsets(),
            groups=self.groups,
            classic_groups=ClassicGroups(self.groups, SETTINGS.groups),
            consumer_groups=consumer_groups,
        )
        self.dispatcher = dispatcher(
            components,
            clock=clock,
            metrics=requests,
            workplace=Workplace.open(SETTINGS.broker, clock),
        )

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        response = await answered(self.dispatcher.accept(framed(key, version, values), SESSION))
        assert response is not None
        return parsed(key, version, b"".join(response))

    async def join(self, version: int = 3, **more: Any) -> Any:
        values = {
            "group_id": GROUP,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": SUBSCRIPTION},),
            "reason": None,
        }
        return await self.ask(ApiKey.JOIN_GROUP, version, **values | more)

    async def sync(self, joined: Any, version: int = 3, **more: Any) -> Any:
        values = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": ({"member_id": joined.member_id, "assignment": b"mine"},),
        }
        return await self.ask(ApiKey.SYNC_GROUP, version, **values | more)

    async def stable(self) -> Any:
        joined = await self.join()
        await self.sync(joined)
        return joined

    async def commit(
        self, version: int = 9, partition: int = 0, offset: int = 5, **more: Any
    ) -> ErrorCode:
        topic = more.pop("topic", self.topic)
        values = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": timedelta(0),
            "topics": (
                {
                    "name": topic.name,
                    "topic_id": topic.id,
                    "partitions": (
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": 3,
                            "committed_metadata": more.pop("metadata", "note"),
                        },
                    ),
                },
            ),
        }
        response = await self.ask(ApiKey.OFFSET_COMMIT, version, **values | more)
        [answer] = response.topics
        assert (answer.topic_id if version >= 10 else answer.name) == (
            topic.id if version >= 10 else topic.name
        )
        [one] = answer.partitions
        code: ErrorCode = one.error_code
        return code

    async def fetch(self, version: int = 9, partitions: tuple[int, ...] | None = (0,)) -> Any:
        topics = None
        if partitions is not None:
            asked = {"name": self.topic.name, "topic_id": self.topic.id}
            topics = ({**asked, "partition_indexes": partitions},)
        one = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        values = {**one, "groups": (one,), "require_stable": True}
        response = await self.ask(ApiKey.OFFSET_FETCH, version, **values)
        return response.groups[0] if version >= 8 else response

    topic: Topic


@asynccontextmanager
async def group_desk(tmp_path: Path) -> AsyncIterator[GroupDesk]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    control = AwayControl(plane)
    membership = await Membership.join(
        control=plane,
        clock=SystemClock(),
        broker_id=None,
        host="here",
        port=9,
        rack=None,
        incarnation=uuid4(),
        lease_ms=60_000,
    )
    made = GroupDesk(control, membership)
    made.topic = await plane.topics.create("events", partition_count=2, configs={})
    yield made
    control.is_away = False
    await made.groups.stop()
    await membership.leave()
    await plane.close()


def versions(key: ApiKey) -> range:
    return range(served()[key].first, served()[key].last + 1)
