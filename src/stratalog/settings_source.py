"""Sources of settings: the only module that reads settings files and the environment.

Later sources win: the defaults, the settings file, the environment, then flags. An unknown name is
an error in every source, because a misspelt setting that is silently ignored is found out only when
it is needed.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from stratalog.environment import ENVIRONMENT
from stratalog.errors import SettingsError, TopicConfigError
from stratalog.settings import Bounds, Choices, Settings
from stratalog.topic_configs import DEFINITIONS, check_configs
from stratalog.units import parse_duration_ms, parse_size_bytes

FILE_NAME = "stratalog.toml"
PREFIX = "STRATALOG_"
FILE_VARIABLE = "STRATALOG_CONFIG"
BOOTSTRAP_VARIABLE = "STRATALOG_BOOTSTRAP"
SIZE_SUFFIXES = ("_bytes", "_bytes_per_second")
"""The names of settings that take a size end so."""
_TOPIC = "topic"
_GIVEN = "given"
"""A field of `Settings` that is no setting."""
_OTHER_VARIABLES = frozenset({FILE_VARIABLE, BOOTSTRAP_VARIABLE})

_WORDS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """One setting: its path, its type and its bounds."""

    section: str
    """Empty for a table of its own, such as `topic`."""
    name: str
    kind: type
    """int, str, bool, or dict for a table of texts."""
    optional: bool
    bounds: Bounds | None
    choices: Choices | None
    default: object

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        return PREFIX + self.path.replace(".", "_").upper()


class _Given(NamedTuple):
    """A value from a source, before the check that the setting exists."""

    path: str
    value: object
    origin: str


def load_settings(
    config: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    environment: Mapping[str, str] = ENVIRONMENT,
    directory: Path | None = None,
) -> Settings:
    """Load all settings. `overrides` are flags, `section.name=value`; later ones win."""
    file = find_settings_file(config, environment, directory or Path.cwd())
    given = [*_from_file(file)] if file is not None else []
    given += _from_environment(environment)
    given += _from_flags(overrides)
    return _build(given)


def find_settings_file(
    config: Path | None, environment: Mapping[str, str], directory: Path
) -> Path | None:
    """Find the file that a flag names, else the environment, else the one in `directory`."""
    if config is not None:
        return config
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    beside = directory / FILE_NAME
    return beside if beside.exists() else None


@cache
def setting_fields() -> Mapping[str, SettingField]:
    """List every setting by its path, in the order of definition."""
    found = {}
    for section, section_default, _ in _members(Settings()):
        if section == _GIVEN:
            continue
        if not is_dataclass(section_default):
            table = _field("", section, section_default, dict)
            found[table.path] = table
            continue
        for name, default, hint in _members(section_default):
            setting = _field(section, name, default, hint)
            found[setting.path] = setting
    return found


def _members(owner: Any) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(type(owner), include_extras=True)
    for member in fields(owner):
        yield member.name, getattr(owner, member.name), hints[member.name]


def _field(section: str, name: str, default: object, hint: Any) -> SettingField:
    parts = [part for part in _flatten_hint(hint) if part is not NoneType]
    kind = next(part for part in parts if isinstance(part, type))
    return SettingField(
        section=section,
        name=name,
        kind=kind,
        optional=NoneType in _flatten_hint(hint),
        bounds=next((part for part in parts if isinstance(part, Bounds)), None),
        choices=next((part for part in parts if isinstance(part, Choices)), None),
        default=default,
    )


def _flatten_hint(hint: Any) -> list[Any]:
    """List the plain types and bounds inside `Annotated[...]`, `... | None` and `dict[...]`."""
    origin = get_origin(hint)
    if origin is None:
        return [hint]
    if origin is dict:
        return [dict]
    if origin is Annotated:
        base, *extras = get_args(hint)
        return [*_flatten_hint(base), *extras]
    return [part for choice in get_args(hint) for part in _flatten_hint(choice)]


def _from_file(file: Path) -> Iterator[_Given]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: there is no such settings file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: the settings file cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: this is not TOML: {error}") from error
    for path, value in _leaves(document):
        yield _Given(path, value, f"{file}")


def _leaves(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for variable, value in environment.items():
        if variable.startswith(PREFIX) and variable not in _OTHER_VARIABLES:
            yield _Given(_path_of_variable(variable), value, f"environment variable {variable}")


def _path_of_variable(variable: str) -> str:
    known = {setting.variable: setting for setting in setting_fields().values()}
    if variable in known:
        return known[variable].path
    for setting in known.values():
        if setting.kind is dict and variable.startswith(f"{setting.variable}_"):
            key = variable.removeprefix(f"{setting.variable}_").lower()
            # Topic configs are named with dots, which the names of variables cannot have.
            return f"{setting.path}.{key.replace('_', '.') if setting.path == 'topic' else key}"
    hint = _nearest(variable, [*known, *_OTHER_VARIABLES])
    raise SettingsError(f"environment variable {variable}: there is no such setting{hint}")


def _from_flags(overrides: Iterable[str]) -> Iterator[_Given]:
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals:
            raise SettingsError(f'--set {path}: write it as "section.name=value"')
        yield _Given(path.strip(), value, f"--set {path}")


def _build(given: Iterable[_Given]) -> Settings:
    values: dict[str, dict[str, Any]] = {}
    given = list(given)
    for item in given:
        setting, key = _find(item)
        section = values.setdefault(setting.section, {})
        if setting.kind is dict:
            section.setdefault(setting.name, {})[key] = _table_value(setting, key, item)
        else:
            section[setting.name] = _convert(setting, item)
    tables = values.pop("", {})
    sections = {name: type(getattr(Settings(), name))(**values[name]) for name in values}
    return Settings(**sections, **tables, given=frozenset(item.path for item in given))


def value_text(settings: Settings, path: str) -> str:
    """Return the value of a number, or of the default of a topic config, as a text."""
    section, _, name = path.partition(".")
    if section == _TOPIC:
        return settings.topic.get(name, DEFINITIONS[name].default)
    return str(getattr(getattr(settings, section), name))


def with_value(settings: Settings, path: str, text: str) -> Settings:
    """Return the settings with another value, which `checked_text` has checked."""
    if value_text(settings, path) == text:
        return settings
    section, _, name = path.partition(".")
    if section == _TOPIC:
        return replace(settings, topic={**settings.topic, name: text})
    changed = replace(getattr(settings, section), **{name: int(text)})
    return replace(settings, **{section: changed})


def checked_text(path: str, text: str) -> str:
    """Check a value as if a flag had given it, and return it without a unit."""
    return value_text(_build([_Given(path, text, "the value")]), path)


def is_given(settings: Settings, path: str) -> bool:
    """Return whether the value was chosen, be it the default."""
    return path in settings.given or value_text(settings, path) != value_text(Settings(), path)


def _find(item: _Given) -> tuple[SettingField, str]:
    """Find the setting and, for a table, the key in it."""
    known = setting_fields()
    setting = known.get(item.path)
    if setting is not None and setting.kind is not dict:
        return setting, ""
    for table in known.values():
        if table.kind is dict and item.path.startswith(f"{table.path}."):
            return table, item.path.removeprefix(f"{table.path}.")
    if setting is not None or any(field.section == item.path for field in known.values()):
        raise SettingsError(f'{item.origin}: "{item.path}" is a table: set a name inside it')
    hint = _nearest(item.path, known)
    raise SettingsError(f'{item.origin}: there is no setting "{item.path}"{hint}')


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f'; did you mean "{close[0]}"?' if close else "; docs/settings.md lists them all"


def _table_value(setting: SettingField, key: str, item: _Given) -> str:
    text = _table_text(item)
    if setting.choices is not None and text not in setting.choices.texts:
        raise SettingsError(f'{item.origin}: "{item.path}" {_choose(setting.choices)}')
    return _topic_default(key, text, item) if setting.path == _TOPIC else text


def _topic_default(name: str, text: str, item: _Given) -> str:
    """Check the default of a topic config, and convert it to Kafka's form, without a unit.

    Without this check, a wrong default would be noticed only when a topic is used.
    """
    try:
        return check_configs({name: _without_unit(name, text)})[name]
    except (TopicConfigError, ValueError) as error:
        raise SettingsError(f'{item.origin}: "{item.path}": {error}') from error


def _without_unit(name: str, text: str) -> str:
    if name.endswith(".ms"):
        return str(parse_duration_ms(text))
    return str(parse_size_bytes(text)) if name.endswith(".bytes") else text


def _table_text(item: _Given) -> str:
    if isinstance(item.value, bool):
        return "true" if item.value else "false"
    if isinstance(item.value, str | int | float):
        return str(item.value)
    raise SettingsError(f'{item.origin}: "{item.path}" must be a text')


def _convert(setting: SettingField, item: _Given) -> object:
    if setting.optional and item.value == "":
        return None
    try:
        return _check(setting, _TO_KIND[setting.kind](setting, item.value))
    except ValueError as error:
        raise SettingsError(f'{item.origin}: "{setting.path}" {error}') from error


def _to_bool(_setting: SettingField, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise ValueError("must be true or false")


def _to_text(setting: SettingField, value: object) -> str:
    # The value is not repeated in the message: addresses may carry a password.
    if not isinstance(value, str):
        raise ValueError("must be a text in quotes")
    if setting.choices is not None and value not in setting.choices.texts:
        raise ValueError(_choose(setting.choices))
    return value


def _choose(choices: Choices) -> str:
    return f"must be one of: {', '.join(choices.texts)}"


def _to_int(setting: SettingField, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be {_wanted(setting)}, not {value!r}")
    try:
        if setting.name.endswith("_ms"):
            return parse_duration_ms(value)
        if setting.name.endswith(SIZE_SUFFIXES):
            return parse_size_bytes(value)
        return int(value)
    except ValueError as error:
        raise ValueError(f'must be {_wanted(setting)}, not "{value}"') from error


def _wanted(setting: SettingField) -> str:
    if setting.name.endswith("_ms"):
        return "milliseconds or a duration such as 250ms, 10s, 5m, 1h or 7d"
    if setting.name.endswith(SIZE_SUFFIXES):
        return "bytes or a size such as 512KiB, 8MiB or 1GiB"
    return "a whole number"


def _check(setting: SettingField, value: Any) -> object:
    if setting.bounds is None:
        return value
    least, most = setting.bounds
    if value < least:
        raise ValueError(f"must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"must be at most {most}, not {value}")
    return value


_TO_KIND = {bool: _to_bool, str: _to_text, int: _to_int}
