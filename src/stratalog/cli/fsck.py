"""`stratalog fsck`: whether a store keeps its promises."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.cli.options import (
    Config,
    Control,
    Data,
    Json,
    Objects,
    Set,
    examples,
    settings_from,
)
from stratalog.cli.output import print_json, print_table, progress_line, say
from stratalog.clock import SystemClock
from stratalog.errors import CallError
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.checks.report import Report

EPILOG = examples(
    "stratalog fsck",
    "stratalog fsck --data /var/lib/stratalog --deep",
    "stratalog fsck --config broker.toml --json",
)

_PROMISES = (
    "an acknowledged batch is readable at its offset",
    "one offset, one value",
    "offsets are dense",
    "boundaries hold",
    "every row's object exists, every object has a row",
    "only the current holder changed anything",
    "every batch's CRC is right",
)
"""In the order of docs/architecture.md, which numbers them from 1."""
_DEEP_ONLY = (1, 7)


class NothingThereError(CallError):
    """There is no control plane to check."""


def fsck(
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every batch.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Check that objects and control plane agree; it reads only, and brokers may be running.

    Without --deep it compares rows, boundaries and objects, which takes one listing. With --deep
    it also reads all data and tests every checksum. It ends with exit code 1 if anything is found.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    _refuse_to_create(settings.storage.control)
    report = asyncio.run(_check(settings, deep))
    if json:
        print_json(report.as_dict())
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _refuse_to_create(control: str) -> None:
    """Opening a SQLite file makes one, and an empty one would be found to be in perfect order."""
    scheme, _, path = control.partition(":")
    if scheme == "sqlite" and not Path(path).exists():
        raise NothingThereError(
            f"there is no control plane at {path}: name it with --data, --control or --config"
        )


async def _check(settings: Settings, deep: bool) -> "Report":
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.checks.fsck import run_fsck
    from stratalog.control.open import open_control_plane
    from stratalog.objects.open import open_store

    storage = settings.storage
    control = await open_control_plane(storage.control)
    try:
        store = open_store(storage.objects, storage.object_options, clock=SystemClock())
        try:
            with progress_line("checking") as progress:
                return await run_fsck(
                    control,
                    store,
                    deep=deep,
                    progress=progress.update,
                    orphan_age_ms=settings.janitor.orphan_age_ms,
                )
        finally:
            await store.close()
    finally:
        await control.close()


def _print_report(report: "Report") -> None:
    say("Checked " + ", ".join(f"{count:,} {what}" for what, count in report.counts.items()) + ".")
    say("")
    found = Counter(int(finding.problem.promise) for finding in report.findings)
    print_table(
        ["", "promise", "result"],
        [
            [number, text, _verdict(number, found, deep=report.deep)]
            for number, text in enumerate(_PROMISES, start=1)
        ],
    )
    for finding in report.findings:
        colour = "red" if finding.problem.severity == "damage" else "yellow"
        say(f"[{colour}]{finding.problem.severity}[/] {escape(str(finding))}")
    if report.left_out:
        say(f"… and {report.left_out:,} more")


def _verdict(number: int, found: Counter[int], *, deep: bool) -> str:
    if found[number]:
        return f"{found[number]} found"
    return "not checked without --deep" if number in _DEEP_ONLY and not deep else "ok"
