"""How fast one consumer reads, beside the fastest thing that it can read from.

Run: python -m bench.consume [--records 100000] [--rounds 3]

1 KiB records read by one confluent-kafka consumer from a broker: fresh ones, served from memory,
and cold ones, read from the objects in a local folder because the broker keeps no block in memory;
and from librdkafka's mock cluster, which serves them out of the client's own memory. They take
turns; the ratio is that of the medians.
"""

from bench.figures import Sides, compare, options

from stratalog.cli.bench import measure_consume, temporary_broker


def main() -> None:
    how = options(__doc__, records=100_000)
    with (
        temporary_broker() as fresh,
        temporary_broker(["block.cache_bytes=1"]) as cold,
    ):
        compare("consume", measure_consume, how, Sides(broker=fresh.address, cold=cold.address))


if __name__ == "__main__":
    main()
