import asyncio
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from stratalog.cluster.hints import Hints, decode_hints, encode_hints
from stratalog.control.brokers.model import BrokerInfo
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicId, TopicPartition

CLUSTER = UUID(int=7)


def partition(index: int) -> TopicPartition:
    return TopicPartition(TopicId(UUID(int=1)), PartitionIndex(index))


def test_hints_survive_the_journey_in_datagrams_that_fit_every_network() -> None:
    advanced = {partition(index): Offset(index * 10) for index in range(1000)}
    datagrams = list(encode_hints(CLUSTER, advanced))
    received: dict[TopicPartition, Offset] = {}
    for datagram in datagrams:
        assert len(datagram) <= 1400
        received.update(decode_hints(CLUSTER, datagram))
    assert received == advanced


def test_another_clusters_hint_says_nothing() -> None:
    (datagram,) = encode_hints(uuid4(), {partition(0): Offset(1)})
    assert decode_hints(CLUSTER, datagram) == {}


@given(st.binary(max_size=200))
def test_garbage_says_nothing_and_harms_nothing(garbage: bytes) -> None:
    assert decode_hints(CLUSTER, garbage) == {}


@given(st.binary(max_size=50))
def test_a_hint_that_is_cut_off_says_nothing(tail: bytes) -> None:
    (datagram,) = encode_hints(CLUSTER, {partition(0): Offset(1)})
    if len(tail) % 28:
        assert decode_hints(CLUSTER, datagram + tail) == {}


async def test_a_broker_hears_what_another_one_committed() -> None:
    heard: asyncio.Queue[dict[TopicPartition, Offset]] = asyncio.Queue()
    listener = Hints(cluster_id=CLUSTER, others=list, on_hint=lambda a: heard.put_nowait(dict(a)))
    await listener.start("127.0.0.1", 0)
    port = listener.port
    peer = BrokerInfo(
        broker_id=BrokerId(2),
        host="localhost",
        port=port,
        rack=None,
        incarnation=UUID(int=2),
        alive=True,
    )
    speaker = Hints(cluster_id=CLUSTER, others=lambda: [peer], on_hint=lambda _: None)
    await speaker.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(10):
            while heard.empty():
                # The first hints only start the look-up of the name.
                speaker.send({partition(3): Offset(42)})
                await asyncio.sleep(0.01)
        assert heard.get_nowait() == {partition(3): Offset(42)}
    finally:
        speaker.close()
        listener.close()
