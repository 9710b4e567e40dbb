"""The options of a sink."""

import pytest

from stratalog.batch.header import Codec
from stratalog.opening.location import ClusterLocation
from stratalog.spark.errors import OptionError
from stratalog.spark.sink_options import SinkOptions, batch_sink_options, stream_sink_options


def test_options_are_read_whatever_their_case() -> None:
    given = {
        "topic": "orders",
        "CONFIG": "s.toml",
        "sinkid": "daily",
        "batchId": "7",
        "compression": "LZ4",
        "leasems": "2h",
    }
    assert batch_sink_options(given) == SinkOptions(
        topic="orders",
        location=ClusterLocation(config="s.toml"),
        sink_id="daily",
        batch_id=7,
        codec=Codec.LZ4,
        lease_ms=7_200_000,
    )


def test_without_options_there_are_defaults() -> None:
    assert batch_sink_options({}) == SinkOptions()
    assert stream_sink_options({}) == SinkOptions()


def test_jobs_for_kafka_change_one_word() -> None:
    given = {
        "kafka.bootstrap.servers": "a:9092",
        "kafka.acks": "all",
        "kafka.compression.type": "gzip",
        "topic": "orders",
        "includeHeaders": "true",
        "checkpointLocation": "there",
    }
    assert stream_sink_options(given) == SinkOptions(
        topic="orders", checkpoint="there", codec=Codec.GZIP
    )


def test_our_compression_wins_over_kafkas() -> None:
    given = {"compression": "none", "kafka.compression.type": "gzip"}
    assert batch_sink_options(given).codec is Codec.NONE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sinkid ": "x"}, "no such option; did you mean sinkId?"),
        ({"tpoic": "x"}, "tpoic: a sink has no such option; did you mean topic?"),
        (
            {"startingOffsets": "earliest"},
            "there are topic, data, objects, control, config, sinkId",
        ),
        ({"path": "orders"}, 'path: name the topic by .option("topic", ...)'),
        ({"topic": " "}, "topic: is empty"),
        ({"compression": "brotli"}, "must be one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.type": "x"}, "kafka.compression.type: must be one of"),
        ({"leaseMs": "0"}, "leaseMs: must be at least 1"),
        ({"leaseMs": "soon"}, "leaseMs: "),
        ({"batchId": "1"}, "batchId: says which write of a sink this is: give a sinkId"),
        ({"sinkId": "a", "batchId": "-1"}, "batchId: must be a whole number"),
        ({"sinkId": "a", "batchId": str(2**63)}, "batchId: must be a whole number"),
        ({"sinkId": "a" * 250}, "sinkId: has 250 characters"),
        (
            {"kafka.partitioner.class": "x"},
            "partitioner; to choose it yourself, give a column partition",
        ),
        ({"kafka.transactional.id": "x"}, "give a sinkId"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch_sink_options(given)
    assert message in str(caught.value)


def test_ids_and_numbers_may_be_as_long_as_they_may() -> None:
    given = {"sinkId": "a" * 249, "batchId": str(2**63 - 1), "leaseMs": "1"}
    options = batch_sink_options(given)
    assert (options.batch_id, options.lease_ms) == (2**63 - 1, 1)


def test_a_stream_is_numbered_by_spark() -> None:
    with pytest.raises(OptionError, match="batchId: Spark numbers the batches"):
        stream_sink_options({"sinkId": "a", "batchId": "1"})
