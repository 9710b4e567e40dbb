import pytest

from stratalog.batch.codec import LEVELS
from stratalog.batch.header import Codec, TimestampType
from stratalog.errors import TopicConfigError
from stratalog.topic.configs import effective
from stratalog.topic_configs import DEFINITIONS, check_configs


def test_without_configs_kafkas_defaults_hold() -> None:
    config = effective({}, {})
    assert config.retention_ms == 7 * 24 * 60 * 60 * 1000
    assert config.retention_bytes is None
    assert config.max_message_bytes == 1048588
    assert config.timestamp_type is TimestampType.CREATE_TIME
    assert config.compression is None
    assert config.local_retention_ms is None


def test_a_topics_own_config_goes_before_the_brokers_default() -> None:
    config = effective(
        {"retention.ms": "1", "retention.bytes": "2"},
        {"retention.ms": "3", "compression.type": "zstd"},
    )
    assert (config.retention_ms, config.retention_bytes) == (3, 2)
    assert config.compression is Codec.ZSTD


def test_minus_one_means_for_ever() -> None:
    config = effective({}, {"retention.ms": "-1", "local.retention.ms": "-1"})
    assert config.retention_ms is None
    assert config.local_retention_ms == 2**63 - 1


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ({"compression.type": "zstd", "compression.zstd.level": "-1"}, -1),
        ({"compression.type": "gzip", "compression.gzip.level": "-1"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "gzip", "compression.zstd.level": "9"}, None),
        ({"compression.type": "lz4"}, None),
        ({"compression.zstd.level": "9"}, None),
    ],
)
def test_the_level_is_the_one_of_the_codec(configs: dict[str, str], level: int | None) -> None:
    assert effective({}, check_configs(configs)).compression_level == level


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "abc"),
        ("local.retention.ms", "-3"),
        ("message.timestamp.type", "Never"),
        ("compression.type", "brotli"),
        ("compression.zstd.level", "high"),
    ],
)
def test_a_value_that_a_config_cannot_have_is_told_with_its_name(name: str, value: str) -> None:
    for defaults, configs in (({name: value}, {}), ({}, {name: value})):
        with pytest.raises(TopicConfigError, match=name):
            effective(defaults, configs)


def test_configs_that_mean_nothing_here_may_be_anything_once_they_are_stored() -> None:
    assert effective({}, {"flush.ms": "soon", "config.of.tomorrow": "x"}) == effective({}, {})


@pytest.mark.parametrize("codec", LEVELS)
def test_the_levels_of_a_codec_are_those_that_it_can_be_given(codec: Codec) -> None:
    name, levels = f"compression.{codec.name.lower()}.level", LEVELS[codec]
    for level in (levels[0], levels[-1]):
        assert check_configs({name: str(level)})
    with pytest.raises(TopicConfigError):
        check_configs({name: str(levels[-1] + 1)})


def test_the_same_configs_are_worked_out_once() -> None:
    assert effective({"retention.ms": "1"}, {}) is effective({"retention.ms": "1"}, {})


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_default_is_a_value_that_the_config_can_have(name: str) -> None:
    assert check_configs({name: DEFINITIONS[name].default})
    assert DEFINITIONS[name].documentation


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("retention.ms", "-1", "-2"),
        ("retention.ms", str(2**63 - 1), str(2**63)),
        ("max.message.bytes", "0", "-1"),
        ("max.message.bytes", str(2**31 - 1), str(2**31)),
        ("local.retention.ms", "-2", "-3"),
        ("segment.bytes", "14", "13"),
        ("index.interval.bytes", "0", "-1"),
        ("compression.type", "uncompressed", "none"),
        ("message.timestamp.type", "LogAppendTime", "logappendtime"),
        ("min.cleanable.dirty.ratio", "1", "1.1"),
        ("min.cleanable.dirty.ratio", "0", "nan"),
        ("preallocate", "true", "yes"),
        ("segment.ms", "1", "one"),
        ("compression.gzip.level", "9", "10"),
        ("compression.gzip.level", "-1", "0"),
        ("compression.lz4.level", "1", "0"),
        ("compression.zstd.level", "-131072", "-131073"),
    ],
)
def test_values_are_checked(name: str, inside: str, outside: str) -> None:
    assert check_configs({name: inside}) == {name: inside}
    with pytest.raises(TopicConfigError, match=name):
        check_configs({name: outside})


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
def test_compaction_is_refused_because_it_would_not_happen(policy: str) -> None:
    with pytest.raises(TopicConfigError, match="not supported yet"):
        check_configs({"cleanup.policy": policy})


def test_an_unknown_config_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(TopicConfigError, match=r"retention\.msec: did you mean retention\.ms\?"):
        check_configs({"retention.msec": "1"})
    with pytest.raises(TopicConfigError, match=r"unknown topic config zzz$"):
        check_configs({"zzz": "1"})
