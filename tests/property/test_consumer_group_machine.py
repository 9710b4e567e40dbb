"""A consumer group with members that are slow, deaf, fenced, restarted or dead, and coordinators
that die or cannot save: at no moment do two members have one partition, and in the end all is
assigned.
"""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.groups.consumer.beats import found_of

from stratalog.errors import StratalogError
from stratalog.groups.consumer.errors import FencedMemberEpochError, UnreleasedInstanceError
from stratalog.groups.consumer.group import ConsumerGroup, Limits
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    GroupState,
    Partitions,
    TopicShape,
)
from stratalog.groups.errors import FencedInstanceError, UnknownMemberError
from stratalog.ids import TopicId, TopicPartition

LIMITS = Limits(session_ms=45_000, max_members=5, look_ms=0)
REBALANCE_MS = 20_000
NAMES = ["red", "green", "rust"]
SUBSCRIPTIONS = [
    (frozenset({"red"}), ""),
    (frozenset({"red", "green"}), ""),
    (frozenset[str](), "^r.*"),
    (frozenset({"green"}), "ru.t"),
]
NOTHING: Partitions = frozenset()


@dataclass
class Client:
    """The knowledge of a consumer about itself. It owns new partitions at once, and releases old
    ones later."""

    member_id: str
    instance_id: str | None
    subscription: tuple[frozenset[str], str]
    assignor: str | None
    epoch: int = 0
    owned: set[TopicPartition] = field(default_factory=set)
    told: Partitions = NOTHING
    unsure: bool = True
    """Set if it must send its full state, because an answer was lost."""
    news: bool = True
    """Set if its partitions have changed since it last sent them."""

    @property
    def reconciled(self) -> bool:
        return self.owned == self.told

    def beat(self) -> Heartbeat:
        full = self.unsure or self.epoch == 0
        names, pattern = self.subscription
        return Heartbeat(
            group_id="g",
            member_id=self.member_id,
            instance_id=self.instance_id,
            epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topic_names=names if full else None,
            topic_pattern=pattern if full else None,
            assignor=self.assignor if full else None,
            owned=frozenset(self.owned) if full or (self.news and self.reconciled) else None,
        )

    def hear(self, beat: Heartbeat, answer: HeartbeatAnswer) -> None:
        assert answer.epoch >= self.epoch
        self.unsure = False
        if beat.owned is not None:
            self.news = False
        self.epoch = answer.epoch
        if answer.assignment is not None and answer.assignment != self.told:
            self.told = answer.assignment
            self.owned |= answer.assignment
            self.news = True

    def let_go(self) -> None:
        if not self.reconciled:
            self.owned = set(self.told)
            self.news = True

    def start_over(self) -> None:
        self.epoch = 0
        self.owned, self.told = set(), NOTHING
        self.unsure = self.news = True


clients = st.integers(0, 100)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.clients: list[Client] = []
        self.made = 0
        self.topics: dict[str, TopicShape] = {}
        state = GroupState(group_epoch=3, assignment_epoch=3)
        self.group = ConsumerGroup("g", LIMITS, state=state, now_s=0)
        self.saved = self.group.to_state()
        self.saved_revision = self.group.revision
        self.epoch = 3

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def send(self, client: Client, *, lost: bool = False, unsaved: bool = False) -> bool:
        """One heartbeat; whether it was answered."""
        beat = client.beat()
        try:
            answer = self.heard(beat)
        except (
            FencedInstanceError,
            FencedMemberEpochError,
            UnknownMemberError,
            UnreleasedInstanceError,
        ):
            client.start_over()
            return False
        if not self.save(fails=unsaved) or lost:
            client.unsure = True
            return False
        client.hear(beat, answer)
        return True

    def heard(self, beat: Heartbeat) -> HeartbeatAnswer:
        found = found_of(self.group.wants(beat), self.topics.values())
        looks = self.group.must_look(beat, self.now_s)
        return self.group.heartbeat(beat, found if looks else None, self.now_s)

    def save(self, *, fails: bool = False) -> bool:
        if self.group.revision == self.saved_revision:
            return True
        data = self.group.to_state()
        if fails:
            self.group.unsaved(StratalogError("no"), self.now_s)
            return False
        self.saved, self.saved_revision = data, self.group.revision
        assert self.group.epoch >= self.epoch
        self.epoch = self.group.epoch
        return True

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def topic_appears_or_grows(self, name: str, count: int) -> None:
        earlier = self.topics.get(name)
        self.made += 1
        self.topics[name] = TopicShape(
            topic_id=earlier.topic_id if earlier else TopicId(UUID(int=self.made)),
            name=name,
            partition_count=max(count, earlier.partition_count if earlier else 0),
        )

    @rule(name=st.sampled_from(NAMES))
    def topic_goes(self, name: str) -> None:
        self.topics.pop(name, None)

    @precondition(lambda self: len(self.clients) < LIMITS.max_members)
    @rule(
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance=st.none() | st.sampled_from(["i1", "i2"]),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def member_joins(
        self, subscription: tuple[frozenset[str], str], instance: str | None, assignor: str | None
    ) -> None:
        if instance is not None and any(each.instance_id == instance for each in self.clients):
            return
        self.made += 1
        client = Client(f"m{self.made}", instance, subscription, assignor)
        if len(self.group.state.members) < LIMITS.max_members:
            self.clients.append(client)
            self.send(client)

    @precondition(lambda self: self.clients)
    @rule(number=clients, lost=st.booleans(), unsaved=st.booleans())
    def member_beats(self, number: int, lost: bool, unsaved: bool) -> None:
        if len(self.group.state.members) < LIMITS.max_members:
            self.send(self.client(number), lost=lost, unsaved=unsaved)

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def member_beats_well(self, number: int) -> None:
        if len(self.group.state.members) < LIMITS.max_members:
            self.send(self.client(number))

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def member_lets_go(self, number: int) -> None:
        self.client(number).let_go()

    @precondition(lambda self: self.clients)
    @rule(number=clients, subscription=st.sampled_from(SUBSCRIPTIONS))
    def member_resubscribes(self, number: int, subscription: tuple[frozenset[str], str]) -> None:
        client = self.client(number)
        client.subscription, client.unsure = subscription, True

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def member_restarts_under_its_id(self, number: int) -> None:
        self.client(number).start_over()

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def member_dies(self, number: int) -> None:
        self.clients.remove(self.client(number))

    @precondition(lambda self: self.clients)
    @rule(number=clients)
    def member_leaves(self, number: int) -> None:
        client = self.client(number)
        self.clients.remove(client)
        self.leave(client, LEAVE_EPOCH)

    @precondition(lambda self: any(each.instance_id for each in self.clients))
    @rule(number=clients)
    def static_member_is_replaced(self, number: int) -> None:
        static = [each for each in self.clients if each.instance_id]
        client = static[number % len(static)]
        if self.leave(client, LEAVE_STATIC_EPOCH):
            self.made += 1
            client.member_id = f"m{self.made}"
        client.start_over()

    def leave(self, client: Client, epoch: int) -> bool:
        beat = Heartbeat(
            group_id="g",
            member_id=client.member_id,
            instance_id=client.instance_id,
            epoch=epoch,
        )
        try:
            self.heard(beat)
        except (UnknownMemberError, FencedInstanceError):
            return False
        return self.save()

    @rule(seconds=st.sampled_from([1, 15, 25, 50]))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        self.group.tick(self.now_s)
        self.save()

    @rule()
    def another_broker_takes_over(self) -> None:
        self.group = ConsumerGroup.load("g", LIMITS, data=self.saved, now_s=self.now_s)
        self.saved_revision = self.group.revision

    @invariant()
    def no_partition_is_with_two_members(self) -> None:
        held: set[TopicPartition] = set()
        for member in self.group.state.members.values():
            assert held.isdisjoint(member.held)
            assert member.assigned.isdisjoint(member.revoking)
            held |= member.held
        self.what_clients_have_is_held_for_them()

    def what_clients_have_is_held_for_them(self) -> None:
        """A client that the group has removed learns it with its next heartbeat."""
        for client in self.clients:
            member = self.group.state.members.get(client.member_id)
            if member is not None:
                assert client.owned <= member.held
                assert client.epoch in (0, member.epoch, member.previous_epoch) or client.unsure

    @invariant()
    def epochs_are_in_order(self) -> None:
        state = self.group.state
        assert state.assignment_epoch <= state.group_epoch
        for member in state.members.values():
            assert member.epoch <= state.assignment_epoch

    def teardown(self) -> None:
        """When all is well again, the dead run out of time and the others get everything."""
        for _ in range(LIMITS.max_members * 6 + 15):
            self.now_s += 4
            self.group.tick(self.now_s)
            self.save()
            for client in self.clients:
                full = len(self.group.state.members) >= LIMITS.max_members
                if client.member_id in self.group.state.members or not full:
                    self.send(client)
                    client.let_go()
        state = self.group.state
        assert state.members.keys() == {client.member_id for client in self.clients}
        assert state.name == ("Stable" if self.clients else "Empty")
        for client in self.clients:
            assert client.owned == state.members[client.member_id].assigned
        everything = {part for client in self.clients for part in client.owned}
        assert everything == {
            TopicPartition(shape.topic_id, index)  # type: ignore[arg-type]
            for shape in state.topics.values()
            for index in range(shape.partition_count)
        }
        if self.clients:
            assert {shape.name for shape in state.topics.values()} == self.wanted_topics()

    def wanted_topics(self) -> set[str]:
        return {
            name
            for name in self.topics
            for client in self.clients
            if name in client.subscription[0]
            or (client.subscription[1] and name[0] == "r" and client.subscription[1] == "^r.*")
            or (client.subscription[1] == "ru.t" and name == "rust")
        }


TestConsumerGroup = GroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
