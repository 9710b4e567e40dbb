"""Options that several commands share, and the settings that they result in."""

from collections.abc import Callable, Sequence
from inspect import getdoc
from pathlib import Path
from typing import Annotated

import typer

from stratalog.opening.location import ClusterLocation
from stratalog.settings import Settings
from stratalog.settings_source import BOOTSTRAP_VARIABLE

DEFAULT_BOOTSTRAP = "localhost:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="The broker to connect to: Stratalog's, or any other that speaks Kafka.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Settings in TOML. Default: $STRATALOG_CONFIG, else ./stratalog.toml if it exists.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, such as block.window_ms=100ms. Repeatable.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR",
        help="The folder that holds the cluster: its objects and its control plane.",
    ),
]
Objects = Annotated[
    str | None,
    typer.Option("--objects", metavar="URL", help="The object store: file:, s3:, gs: or az:."),
]
Control = Annotated[
    str | None,
    typer.Option("--control", metavar="URL", help="The control plane: sqlite: or postgresql:."),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level", metavar="LEVEL", help="The least level that is logged. Default: log.level."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log everything, as debug does.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def log_flags(level: str | None, *, verbose: bool, quiet: bool) -> list[str]:
    """Return the settings that the flags for logs stand for. A named level wins."""
    named = level or ("debug" if verbose else "warning" if quiet else None)
    return [] if named is None else [f"log.level={named}"]


def examples(*lines: str) -> str:
    """An epilog of commands to copy. Typer joins single lines, so each is its own paragraph."""
    return "\n\n".join(["[bold]Examples[/]", *(f"  {line}" for line in lines)])


def prose(command: Callable[..., None]) -> str:
    """A command's docstring as flowing paragraphs: Typer keeps the line breaks of the source."""
    paragraphs = getdoc(command) or ""
    return "\n\n".join(" ".join(text.split()) for text in paragraphs.split("\n\n"))


def settings_from(
    config: Path | None,
    overrides: Sequence[str] | None,
    *,
    data: Path | None = None,
    objects: str | None = None,
    control: str | None = None,
    flags: Sequence[str] = (),
) -> Settings:
    """Return the settings of the cluster that the flags name. `flags` win over everything."""
    location = ClusterLocation(data=data, objects=objects, control=control, config=config)
    return location.settings(overrides or (), flags=flags)
