import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from stratalog.cluster.hint_seal import HintSeal
from stratalog.cluster.hints import Hints, decode_hints, encode_hints
from stratalog.control.brokers.model import BrokerInfo
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.metrics import Metrics

KEY = b"k" * 32


def seal(sender: int = 1, *, key: bytes = KEY, cluster: int = 7) -> HintSeal:
    return HintSeal(key=key, cluster_id=UUID(int=cluster), incarnation=UUID(int=sender))


def partition(index: int) -> TopicPartition:
    return TopicPartition(TopicId(UUID(int=1)), PartitionIndex(index))


def test_hints_survive_the_journey_in_datagrams_that_fit_every_network() -> None:
    advanced = {partition(index): Offset(index * 10) for index in range(1000)}
    received: dict[TopicPartition, Offset] = {}
    receiver = seal(2)
    for datagram in encode_hints(seal(1), advanced):
        assert len(datagram) <= 1400
        received.update(decode_hints(receiver, datagram) or {})
    assert received == advanced


def test_a_hint_of_another_cluster_or_of_a_forger_is_refused() -> None:
    for forger in (seal(key=b"x" * 32), seal(cluster=8)):
        (datagram,) = encode_hints(forger, {partition(0): Offset(1)})
        assert decode_hints(seal(2), datagram) is None


def test_a_hint_that_was_changed_on_its_way_is_refused() -> None:
    (datagram,) = encode_hints(seal(1), {partition(0): Offset(1)})
    for position in range(len(datagram)):
        changed = bytearray(datagram)
        changed[position] ^= 1
        assert decode_hints(seal(2), bytes(changed)) is None


def test_a_recorded_hint_that_is_sent_again_is_refused() -> None:
    sender, receiver = seal(1), seal(2)
    (first,) = encode_hints(sender, {partition(0): Offset(1)})
    (second,) = encode_hints(sender, {partition(0): Offset(2)})
    assert decode_hints(receiver, first) == {partition(0): 1}
    assert decode_hints(receiver, first) is None
    assert decode_hints(receiver, second) == {partition(0): 2}
    assert decode_hints(receiver, first) is None


def test_a_broker_that_starts_again_is_heard() -> None:
    receiver = seal(2)
    for incarnation in (1, 3):
        (datagram,) = encode_hints(seal(incarnation), {partition(0): Offset(1)})
        assert decode_hints(receiver, datagram) == {partition(0): 1}


@given(st.binary(max_size=200))
def test_garbage_says_nothing_and_harms_nothing(garbage: bytes) -> None:
    assert decode_hints(seal(), garbage) is None
    assert decode_hints(seal(), b"SLH2" + garbage) is None


async def test_a_broker_hears_another_one_and_counts_strangers() -> None:
    heard: asyncio.Queue[dict[TopicPartition, Offset]] = asyncio.Queue()
    metrics = Metrics()
    listener = Hints(
        seal=seal(1),
        others=list,
        on_hint=lambda advanced: heard.put_nowait(dict(advanced)),
        metrics=metrics,
    )
    await listener.start("127.0.0.1", 0)
    peer = BrokerInfo(
        broker_id=BrokerId(2),
        host="localhost",
        port=listener.port,
        rack=None,
        incarnation=UUID(int=2),
        alive=True,
    )
    speakers = [
        Hints(seal=each, others=lambda: [peer], on_hint=lambda _: None, metrics=Metrics())
        for each in (seal(9, key=b"x" * 32), seal(2))
    ]
    for speaker in speakers:
        await speaker.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(10):
            while heard.empty():
                # The first hints only start the look-up of the name.
                for speaker in speakers:
                    speaker.send({partition(3): Offset(42)})
                await asyncio.sleep(0.01)
            while not metrics.registry.get_sample_value(  # noqa: ASYNC110
                "stratalog_hints_refused_total"
            ):
                await asyncio.sleep(0.01)
        assert heard.get_nowait() == {partition(3): Offset(42)}
    finally:
        for speaker in speakers:
            speaker.close()
        listener.close()
