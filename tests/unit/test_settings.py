from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from tools.make_settings_page import PAGE, render

from stratalog.errors import SettingsError
from stratalog.settings import INT32_MOST, Settings
from stratalog.settings_source import load_settings, setting_fields

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Reads settings from the given sources and from nowhere else."""

    def load(
        *flags: str,
        file: str | None = None,
        environment: dict[str, str] | None = None,
        config: Path | None = None,
    ) -> Settings:
        if file is not None:
            (tmp_path / "stratalog.toml").write_text(file)
        return load_settings(config, flags, environment=environment or {}, directory=tmp_path)

    return load


def test_without_any_source_there_are_the_defaults(load: Load) -> None:
    assert load() == Settings()


def test_later_sources_win_and_each_keeps_what_the_later_ones_leave_alone(load: Load) -> None:
    settings = load(
        "block.retry_ms=3",
        file="[block]\nwindow_ms = 1\nmax_bytes = 1\nretry_ms = 1\n",
        environment={"STRATALOG_BLOCK_MAX_BYTES": "2", "STRATALOG_BLOCK_RETRY_MS": "2"},
    )
    assert (settings.block.window_ms, settings.block.max_bytes, settings.block.retry_ms) == (
        1,
        2,
        3,
    )
    assert settings.block.parallel_uploads == Settings().block.parallel_uploads


def test_of_two_flags_the_later_one_wins(load: Load) -> None:
    assert load("fetch.poll_ms=1", "fetch.poll_ms=2").fetch.poll_ms == 2


def test_a_named_file_beats_the_variable_which_beats_the_file_in_the_folder(
    load: Load, tmp_path: Path
) -> None:
    here = "[block]\nwindow_ms = 1\n"
    (tmp_path / "variable.toml").write_text("[block]\nwindow_ms = 2\n")
    (tmp_path / "flag.toml").write_text("[block]\nwindow_ms = 3\n")
    variable = {"STRATALOG_CONFIG": f"{tmp_path / 'variable.toml'}"}
    flag = tmp_path / "flag.toml"
    assert load(file=here).block.window_ms == 1
    assert load(file=here, environment=variable).block.window_ms == 2
    assert load(file=here, environment=variable, config=flag).block.window_ms == 3


def test_durations_and_sizes_take_units_in_every_source(load: Load) -> None:
    settings = load(
        "janitor.grace_ms=1h",
        file='[block]\nwindow_ms = "1.5s"\n',
        environment={"STRATALOG_BLOCK_MAX_BYTES": "16MiB"},
    )
    assert settings.block.window_ms == 1500
    assert settings.block.max_bytes == 16 * 1024 * 1024
    assert settings.janitor.grace_ms == 3_600_000


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("off", False), ("0", False)])
def test_switches_are_read_from_words(load: Load, text: str, expected: bool) -> None:
    assert load(f"broker.auto_create_topics={text}").broker.auto_create_topics is expected


def test_an_empty_text_unsets_an_optional_setting(load: Load) -> None:
    settings = load("broker.id=", "broker.rack=", file='[broker]\nid = 7\nrack = "a"\n')
    assert (settings.broker.id, settings.broker.rack) == (None, None)


def test_topic_defaults_come_from_every_source_and_merge(load: Load) -> None:
    settings = load(
        "topic.retention.ms=1",
        file='[topic]\n"cleanup.policy" = "delete"\nmax.message.bytes = 5\npreallocate = true\n',
        environment={"STRATALOG_TOPIC_SEGMENT_BYTES": "99"},
    )
    assert settings.topic == {
        "cleanup.policy": "delete",
        "max.message.bytes": "5",
        "preallocate": "true",
        "segment.bytes": "99",
        "retention.ms": "1",
    }


def test_topic_defaults_take_units_in_every_source(load: Load) -> None:
    settings = load(
        "topic.retention.ms=7d",
        file='[topic]\n"segment.bytes" = "512MiB"\n"retention.bytes" = -1\n',
        environment={"STRATALOG_TOPIC_SEGMENT_MS": "1.5s"},
    )
    assert settings.topic == {
        "retention.ms": "604800000",
        "segment.bytes": "536870912",
        "retention.bytes": "-1",
        "segment.ms": "1500",
    }


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("topic.segment.bytes=abc", '"abc" is not a number with one of the units B, KiB'),
        ("topic.segment.bytes=13", "it must be from 14 to"),
        ("topic.retention.ms=8MiB", '"MiB" is not one of the units ms, s'),
        ("topic.compression.type=zip", "it must be one of producer"),
        ("topic.cleanup.policy=compact", "not supported yet"),
        ("topic.retention.msec=1", "did you mean retention.ms?"),
    ],
)
def test_a_topic_default_that_no_topic_can_have_is_refused_with_its_name(
    load: Load, flag: str, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flag)
    assert f'"{flag.partition("=")[0]}"' in str(caught.value)
    assert message in str(caught.value)


def test_store_options_keep_their_underscores(load: Load) -> None:
    settings = load(
        "storage.object_options.region=here",
        environment={"STRATALOG_STORAGE_OBJECT_OPTIONS_ACCESS_KEY_ID": "me"},
    )
    assert settings.storage.object_options == {"access_key_id": "me", "region": "here"}


def test_an_unknown_name_in_the_file_is_told_with_the_file_and_the_nearest_name(
    load: Load, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(file="[block]\nwindw_ms = 1\n")
    assert str(tmp_path / "stratalog.toml") in str(caught.value)
    assert '"block.windw_ms"; did you mean "block.window_ms"?' in str(caught.value)


def test_an_unknown_variable_is_told_with_the_nearest_variable(load: Load) -> None:
    with pytest.raises(SettingsError, match='did you mean "STRATALOG_BLOCK_WINDOW_MS"'):
        load(environment={"STRATALOG_BLOCK_WINDOWS_MS": "1"})


def test_variables_of_others_and_of_the_client_commands_are_left_alone(load: Load) -> None:
    assert load(environment={"PATH": "x", "STRATALOG_BOOTSTRAP": "x:1"}) == Settings()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("window_ms=1", 'no setting "window_ms"; did you mean "block.window_ms"'),
        ("zzz=1", "docs/settings.md"),
        ("block.window_ms", "section.name=value"),
        ("block=1", "is a table"),
        ("topic=1", "is a table"),
        ("block.window_ms=soon", 'such as 250ms, 10s, 5m, 1h or 7d, not "soon"'),
        ("block.window_ms=8MiB", "a duration"),
        ("block.max_bytes=1s", "a size"),
        ("block.parallel_uploads=1s", "a whole number"),
        ("broker.auto_create_topics=perhaps", "must be true or false"),
    ],
)
def test_a_wrong_flag_is_told_with_what_to_write(load: Load, flag: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(flag)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("[block]\nwindow_ms = true\n", "not True"),
        ("[block]\nwindow_ms = 1.5\n", "not 1.5"),
        ("[broker]\nlisten = 9092\n", "must be a text in quotes"),
        ('[broker]\nauto_create_topics = "si"\n', "true or false"),
        ("[topic]\nx = [1]\n", "must be a text"),
        ("[block\n", "not TOML"),
        ("block = 1\n", "is a table"),
    ],
)
def test_a_value_of_the_wrong_type_in_the_file_is_told(load: Load, file: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(file=file)


def test_a_message_about_an_address_does_not_repeat_it(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load(file='[storage]\ncontrol = ["postgresql://user:hunter2@host/db"]\n')
    assert "hunter2" not in str(caught.value)


def test_a_named_file_that_is_missing_is_an_error(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such settings file"):
        load(config=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("block.window_ms", 0, -1),
        ("block.max_bytes", 1, 0),
        ("broker.default_partitions", 1, 0),
        ("broker.id", 0, -1),
        ("broker.id", INT32_MOST, INT32_MOST + 1),
        ("broker.max_request_bytes", INT32_MOST, INT32_MOST + 1),
        ("janitor.interval_ms", 0, -1),
    ],
)
def test_bounds_admit_what_is_just_inside_and_refuse_what_is_just_outside(
    load: Load, name: str, good: int, bad: int
) -> None:
    section, field = name.split(".")
    assert getattr(getattr(load(f"{name}={good}"), section), field) == good
    with pytest.raises(SettingsError, match=f"must be at (least|most) {good}"):
        load(f"{name}={bad}")


def test_every_number_has_bounds_that_its_default_is_within() -> None:
    for setting in setting_fields().values():
        if setting.kind is int:
            assert setting.bounds is not None, setting.path
            if setting.default is not None:
                assert isinstance(setting.default, int)
                assert setting.default >= setting.bounds.least, setting.path


def test_every_field_of_every_section_is_a_setting() -> None:
    defaults = Settings()
    expected = []
    for section in fields(defaults):
        value = getattr(defaults, section.name)
        if is_dataclass(value):
            expected += [f"{section.name}.{field.name}" for field in fields(value)]
        elif section.name != "given":
            expected.append(section.name)
    assert list(setting_fields()) == expected


def test_the_settings_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"
