"""A classic group under members that join, fall silent, leave, come back and are cut off.

The members here are honest clients: they believe the answers of the coordinator, and nothing else.
Whatever
happens, those who believe to be in the same generation never own the same partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.errors import StratalogError
from stratalog.groups.classic.group import ClassicGroup
from stratalog.groups.classic.model import (
    ClassicLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from stratalog.groups.errors import (
    FencedInstanceError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)

PARTITIONS = 7
SESSION_S = 10
REBALANCE_S = 20


@dataclass
class Client:
    """The knowledge of one client."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] | None = None
    """Its assignment in its generation; None if it does not know."""
    joining: int | None = None
    syncing: int | None = None
    duty: list[str] = field(default_factory=list)
    """The members that it has to assign partitions to, if it leads."""
    last_life_s: float = 0.0

    def forget(self) -> None:
        self.generation, self.owned, self.duty = -1, None, []


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.clients: list[Client] = []
        self.tickets = 0
        self.highest = 0
        self.agreed: dict[int, Mapping[str, bytes]] = {}
        """The assignment by the leader of each generation."""

    @initialize(delay_ms=st.sampled_from([0, 3000]))
    def found(self, delay_ms: int) -> None:
        self.limits = ClassicLimits(
            initial_rebalance_delay_ms=delay_ms,
            min_session_timeout_ms=1000,
            max_session_timeout_ms=60_000,
            max_size=4,
        )
        self.group = ClassicGroup(self.limits)
        self._save()

    # Actions of clients.

    @rule(static=st.booleans())
    def somebody_comes(self, static: bool) -> None:
        if len(self.clients) < 6:
            client = Client(f"i{len(self.clients) % 3}" if static else None)
            self.clients.append(client)
            self._join(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_joins_again(self, data: st.DataObject) -> None:
        client = self._one(data)
        if client.joining is None:
            self._join(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_syncs(self, data: st.DataObject) -> None:
        client = self._one(data)
        if client.generation < 0 or client.syncing is not None or client.joining is not None:
            return
        assignments = _deal(client.duty)
        if client.duty:
            self.agreed.setdefault(client.generation, assignments)
        self.tickets += 1
        client.syncing = self.tickets
        request = SyncRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
            assignments=assignments,
        )
        self.group.sync(self.tickets, request, self.now_s)
        self._answer()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_sends_a_heartbeat(self, data: st.DataObject) -> None:
        client = self._one(data)
        if client.generation < 0:
            return
        try:
            self.group.heartbeat(
                client.member_id, client.instance_id, client.generation, self.now_s
            )
        except RebalanceInProgressError:
            client.last_life_s = self.now_s
        except FencedInstanceError:
            self.clients.remove(client)
        except StratalogError:
            client.forget()
            client.member_id = ""
        else:
            client.last_life_s = self.now_s

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        client = self._one(data)
        leaving = Leaving(member_id=client.member_id, instance_id=client.instance_id)
        self.group.leave([leaving], self.now_s)
        self.clients.remove(client)
        self._answer()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_dies(self, data: st.DataObject) -> None:
        self.clients.remove(self._one(data))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_connection_is_cut(self, data: st.DataObject) -> None:
        """The answer to the client's request never arrives."""
        client = self._one(data)
        client.joining = client.syncing = None

    @rule(seconds=st.sampled_from([0.5, 3.0, SESSION_S - 1, SESSION_S + 1, REBALANCE_S]))
    def time_passes(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        for _ in range(1000):
            deadline_s = self.group.deadline_s
            if deadline_s is None or deadline_s > end_s:
                break
            self.now_s = max(self.now_s, deadline_s)
            self.group.tick(self.now_s)
            self._answer()
        else:
            raise AssertionError("the group is never at rest")
        self.now_s = end_s

    @rule()
    def another_broker_takes_over(self) -> None:
        """It finds the last saved state, which no client has seen yet."""
        self.group = ClassicGroup.resumed(self.saved, self.limits, self.now_s)
        self.saved_revision = self.group.revision
        for client in self.clients:
            client.joining = client.syncing = None

    @rule()
    def a_save_fails(self) -> None:
        self.group.unsaved(OSError("no database"), self.now_s)
        self._answer()

    # How clients take answers.

    def _one(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients), label="client")

    def _join(self, client: Client) -> None:
        self.tickets += 1
        client.forget()
        client.joining = self.tickets
        client.syncing = None
        request = JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            session_timeout_ms=SESSION_S * 1000,
            rebalance_timeout_ms=REBALANCE_S * 1000,
            protocol_type="consumer",
            protocols={"range": b""},
        )
        self.group.join(self.tickets, request, self.now_s)
        self._answer()

    def _save(self) -> None:
        self.saved = self.group.to_state()
        self.saved_revision = self.group.revision

    def _answer(self) -> None:
        if self.group.revision != self.saved_revision:
            self._save()
        for ticket, value in self.group.take_answers():
            for client in list(self.clients):
                if client.joining == ticket:
                    assert isinstance(value, JoinAnswer)
                    self._joined(client, value)
                elif client.syncing == ticket:
                    assert isinstance(value, SyncAnswer)
                    self._synced(client, value)

    def _joined(self, client: Client, answer: JoinAnswer) -> None:
        client.joining = None
        if isinstance(answer.error, MemberIdRequiredError):
            client.member_id = answer.member_id
        elif isinstance(answer.error, FencedInstanceError):
            self.clients.remove(client)
        elif answer.error is not None:
            client.member_id = ""
        else:
            assert answer.generation >= self.highest, "a generation went back"
            self.highest = answer.generation
            client.member_id, client.generation = answer.member_id, answer.generation
            client.last_life_s = self.now_s
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.duty = [member.member_id for member in answer.members] if leads else []

    def _synced(self, client: Client, answer: SyncAnswer) -> None:
        client.syncing = None
        if isinstance(answer.error, FencedInstanceError):
            self.clients.remove(client)
        elif answer.error is not None:
            client.forget()
        else:
            client.owned = frozenset(answer.assignment)
            client.last_life_s = self.now_s
            given = self.agreed[client.generation]
            place = client.member_id
            if client.instance_id is None:
                assert answer.assignment == given.get(place, b"")

    # Invariants.

    @invariant()
    def nobody_shares_a_partition_in_one_generation(self) -> None:
        """A static member's process before does not count: it hears that it is fenced."""
        owners: dict[tuple[int, int], Client] = {}
        for client in self.clients:
            if client.member_id not in self.group.members:
                continue
            for partition in client.owned or ():
                other = owners.setdefault((client.generation, partition), client)
                assert other is client, f"partition {partition} has two owners"

    @invariant()
    def in_a_stable_group_every_member_has_exactly_its_own(self) -> None:
        shown = self.group.describe()
        if shown.state_name == "Stable":
            held = [partition for member in shown.members for partition in member.assignment]
            assert len(held) == len(set(held))

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.group.generation >= self.highest
        self.highest = max(self.highest, self.group.generation)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """Every waiting client is answered in the end: something is due."""
        if any(each.joining or each.syncing for each in self.group.members):
            assert self.group.deadline_s is not None


def _deal(members: list[str]) -> dict[str, bytes]:
    return {
        member: bytes(range(place, PARTITIONS, len(members)))
        for place, member in enumerate(members)
    }


ClassicGroupMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
TestClassicGroup = ClassicGroupMachine.TestCase
