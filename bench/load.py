"""A load for the measurements that look at the broker and not at the client."""

import os

from confluent_kafka import Consumer, Producer, TopicPartition

RECORD_BYTES = 1024


def produce_and_consume(bootstrap: str, records: int, topic: str = "load") -> None:
    """Write as fast as the client can, then read everything."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    payload = os.urandom(RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, payload, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while count < records:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise SystemExit(f"only {count} of {records} records came back")
        count += len(messages)
    consumer.close()
