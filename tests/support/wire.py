"""Requests by hand: the ones that no client would send, or would send to another broker."""

import io
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import request as fetch_request
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v5 import request as metadata_request
from kio.schema.metadata.v5.response import MetadataResponse
from kio.schema.produce.v9 import request as produce_request
from kio.schema.produce.v9.response import PartitionProduceResponse, ProduceResponse
from kio.schema.request_header.v1.header import RequestHeader as OldHeader
from kio.schema.request_header.v2.header import RequestHeader as FlexibleHeader
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records

_LENGTH = struct.Struct(">i")
_ANSWER_SECONDS = 30.0
FETCH_BYTES = 1 << 22


class Wire:
    """One blocking connection. Responses are read in the order of their requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(_LENGTH.pack(len(body)) + body)

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the connection. False if bytes come instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def receive_frame(self) -> bytes:
        (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        return self._receive(size)

    def ask(self, request: Any, response_schema: Any) -> Any:
        self.send(request)
        return self.answer(response_schema)

    def send(self, request: Any) -> None:
        self.send_frame(frame_of(request, self._correlation_id))
        self._correlation_id += 1

    def answer(self, response_schema: Any) -> Any:
        frame = memoryview(self.receive_frame())
        _, size = entity_reader(response_schema.__header_schema__)(frame, 0)
        response, _ = entity_reader(response_schema)(frame, size)
        return response

    def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        answer: ProduceResponse = self.ask(
            produce_of(topic, records, partition=partition, acks=acks), ProduceResponse
        )
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, partition: int, start: int, *, max_bytes: int = FETCH_BYTES
    ) -> tuple[ErrorCode, list[Record]]:
        """Return the result of one fetch without waiting, from the batch with the offset `start`
        on."""
        answer: FetchResponse = self.ask(
            fetch_of(topic, partition, start, max_bytes=max_bytes), FetchResponse
        )
        read = answer.responses[0].partitions[0]
        return read.error_code, list(iter_records(read.records or b""))

    def fetch_values(
        self, topic: str, *, partition: int = 0, start: int = 0, max_bytes: int = FETCH_BYTES
    ) -> list[bytes | None]:
        """All values from an offset on, read from this broker even if another leads the
        partition."""
        found: list[bytes | None] = []
        while True:
            error, records = self.fetch(topic, partition, start, max_bytes=max_bytes)
            assert error is ErrorCode.none, error
            if not records:
                return found
            for record in records:
                if record.offset >= start:
                    assert record.offset == start, f"offset {record.offset} after {start - 1}"
                    found.append(record.value)
                    start += 1

    def leaders(self, topic: str) -> dict[int, str]:
        """Which broker's address is named for each partition."""
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(name=TopicName(topic)),),
            allow_auto_topic_creation=False,
        )
        answer: MetadataResponse = self.ask(request, MetadataResponse)
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        assert answer.topics[0].error_code is ErrorCode.none, answer.topics[0].error_code
        return {one.partition_index: brokers[one.leader_id] for one in answer.topics[0].partitions}

    def broker_count(self) -> int:
        request = metadata_request.MetadataRequest(topics=(), allow_auto_topic_creation=False)
        answer: MetadataResponse = self.ask(request, MetadataResponse)
        return len(answer.brokers)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError(f"closed after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)


@contextmanager
def connected(address: str) -> Iterator[Wire]:
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()


def frame_of(request: Any, correlation_id: int = 0) -> bytes:
    header_schema = request.__header_schema__
    assert header_schema in (OldHeader, FlexibleHeader)
    header = header_schema(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id="wire",
    )
    sink = io.BytesIO()
    entity_writer(header_schema)(sink, header)
    entity_writer(type(request))(sink, request)
    return sink.getvalue()


def produce_of(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> Any:
    place: Any = produce_request.PartitionProduceData(index=partition, records=records)  # type: ignore[arg-type]
    data: Any = produce_request.TopicProduceData(name=topic, partition_data=(place,))  # type: ignore[arg-type]
    return produce_request.ProduceRequest(
        acks=acks,  # type: ignore[arg-type]
        timeout=timedelta(seconds=30),  # type: ignore[arg-type]
        topic_data=(data,),
    )


def fetch_of(topic: str, partition: int, offset: int, *, max_bytes: int = FETCH_BYTES) -> Any:
    most_bytes: Any = max_bytes
    place: Any = fetch_request.FetchPartition(
        partition=partition,  # type: ignore[arg-type]
        fetch_offset=offset,  # type: ignore[arg-type]
        partition_max_bytes=most_bytes,
    )
    asked: Any = fetch_request.FetchTopic(topic=topic, partitions=(place,))  # type: ignore[arg-type]
    return fetch_request.FetchRequest(
        max_wait=timedelta(0),  # type: ignore[arg-type]
        min_bytes=0,  # type: ignore[arg-type]
        max_bytes=most_bytes,
        topics=(asked,),
        forgotten_topics_data=(),
    )


def batch_of(values: Iterable[bytes], **header: Any) -> bytes:
    """A record batch as a producer makes it."""
    now_ms = header.pop("timestamp_ms", 1_750_000_000_000)
    records = [Record(place, now_ms, None, value) for place, value in enumerate(values)]
    return build_batch(records, **header)
