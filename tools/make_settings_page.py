"""Writes docs/settings.md from the settings themselves, so that the page cannot disagree."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from stratalog import settings
from stratalog.settings_source import SIZE_SUFFIXES, SettingField, setting_fields
from stratalog.units import format_duration, format_size

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

INTRODUCTION = """\
# Settings

This page is generated from `src/stratalog/settings.py` by `make docs`.

A broker runs without any settings. Each one can be given in four places; later ones win:

1. the default below;
2. a TOML file: the one named by `--config`, else by `STRATALOG_CONFIG`, else `stratalog.toml` in
   the working directory;
3. the environment: `STRATALOG_BLOCK_WINDOW_MS=100` sets `block.window_ms`;
4. flags: `stratalog up --set block.window_ms=100ms`, and flags of their own such as `--listen`.

```toml shown
[broker]
listen = "0.0.0.0:9092"
advertise = "kafka.example.com:9092"

[storage]
objects = "s3://my-bucket/stratalog"
control = "postgresql://stratalog@db.example.com/stratalog"
object_options = { region = "eu-central-1" }

[block]
window_ms = "100ms"

[topic]
"retention.ms" = "1d"
```

Names that end in `_ms` take milliseconds or a duration (`250ms`, `10s`, `5m`, `1h`, `7d`); names
that end in `_bytes` or `_bytes_per_second` take bytes or a size (`512KiB`, `8MiB`, `1GiB`; `MB` is
a million). So do topic configs that end in `.ms` and `.bytes`. A name that does not exist is an
error, in the file as in the environment, and so is a value out of its range. An optional setting
is unset by an empty text.

Settings that are marked as shared belong to the cluster: the control plane has their values, and
`stratalog cluster config` changes them ([operations](operations.md#settings-of-the-cluster)). Of
`topic`, these are `"retention.ms"` and `"retention.bytes"`.
"""


def render() -> str:
    docstrings = _docstrings()
    sections: dict[str, list[SettingField]] = {}
    for field in setting_fields().values():
        sections.setdefault(field.section or field.name, []).append(field)
    return INTRODUCTION + "".join(
        f"\n## {section}\n\n" + "\n".join(_entry(field, docstrings) for field in members)
        for section, members in sections.items()
    )


def _entry(field: SettingField, docstrings: dict[tuple[str, str], str]) -> str:
    owner = f"{field.section.capitalize()}Settings" if field.section else "Settings"
    facts = f"default {_default(field)}; {_variable(field)}"
    facts += "; shared" if field.path in settings.CLUSTER_WIDE else ""
    text = docstrings[owner, field.name].replace("<", "\\<")
    return f"**`{field.path}`** — {facts}\n\n{text}\n"


def _default(field: SettingField) -> str:
    value = field.default
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and field.name.endswith("_ms"):
        return f"`{format_duration(value)}`"
    if isinstance(value, int) and field.name.endswith(SIZE_SUFFIXES):
        return f"`{format_size(value)}`"
    return "empty" if value == {} else f"`{value}`"


def _variable(field: SettingField) -> str:
    if field.kind is not dict:
        return f"`{field.variable}`"
    form = "dots written as `_`" if field.path == "topic" else "in lower case"
    return f"`{field.variable}_<NAME>`, the name {form}"


def _docstrings() -> dict[tuple[str, str], str]:
    """The text under each attribute, which Python itself does not keep."""
    found = {}
    for owner in ast.parse(inspect.getsource(settings)).body:
        if isinstance(owner, ast.ClassDef):
            for name, text in _described(owner):
                found[owner.name, name] = inspect.cleandoc(text)
    return found


def _described(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for attribute, below in zip(owner.body, owner.body[1:], strict=False):
        match attribute, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, text


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote docs/{PAGE.name}")
