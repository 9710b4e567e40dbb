"""How fast one producer writes, beside the fastest thing that it can write to.

Run: python -m bench.produce [--records 400000] [--rounds 3]

1 KiB records from one confluent-kafka producer, acks=all, to a broker with durable blocks in a
local folder; and to librdkafka's mock cluster, which keeps batches in the client's own memory and
is thus the ceiling of the client. They take turns; the ratio is that of the medians.
"""

from bench.figures import Sides, compare, options

from stratalog.cli.bench import measure_produce, temporary_broker


def main() -> None:
    how = options(__doc__, records=400_000)
    with temporary_broker() as broker:
        compare("produce", measure_produce, how, Sides(broker=broker.address))


if __name__ == "__main__":
    main()
