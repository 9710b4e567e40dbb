"""`stratalog fsck`: check the promises of a cluster."""

import asyncio
from collections import Counter
from collections.abc import Sequence
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
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.checks.report import Report
    from stratalog.checks.segment_repair import Repair

EPILOG = examples(
    "stratalog fsck",
    "stratalog fsck --data /var/lib/stratalog --deep",
    "stratalog fsck --config broker.toml --json",
    "stratalog fsck --config broker.toml --rebuild-indexes",
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


def fsck(
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every batch.")] = False,
    rebuild_indexes: Annotated[
        bool,
        typer.Option(
            "--rebuild-indexes",
            help="First rebuild damaged indexes of segments from their logs.",
        ),
    ] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Check that objects and control plane agree. It only reads, and brokers may be running.

    Without --deep it compares rows, boundaries and objects, which takes a few listings. With
    --deep it also reads all data, tests every checksum and compares the indexes of segments with
    their logs. With --rebuild-indexes it first reads all segments and writes damaged indexes and
    manifests again; brokers may be running, and records are never changed. The exit code is 1 if
    anything is found.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    report, repairs = asyncio.run(_check(settings, deep=deep, rebuild=rebuild_indexes))
    if json:
        repaired = [repair.as_dict() for repair in repairs]
        print_json(report.as_dict() | ({"repairs": repaired} if rebuild_indexes else {}))
    else:
        if rebuild_indexes:
            _print_repairs(repairs)
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


async def _check(
    settings: Settings, *, deep: bool, rebuild: bool
) -> "tuple[Report, Sequence[Repair]]":
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.checks.fsck import run_fsck
    from stratalog.checks.remote_tier import RemoteTier
    from stratalog.checks.segment_repair import rebuild_indexes
    from stratalog.opening.cluster import Rights, opened_cluster

    # Also for repairs: they replace objects by their own names, and encrypt nothing that was not.
    async with opened_cluster(settings, Rights.READ) as cluster:
        tier = RemoteTier(stores=cluster.segments, keys=cluster.keys, prefix=settings.remote.prefix)
        repairs: Sequence[Repair] = []
        if rebuild:
            with progress_line("rebuilding") as progress:
                repairs = await rebuild_indexes(cluster.control, tier, progress.update)
        with progress_line("checking") as progress:
            report = await run_fsck(
                cluster.control,
                cluster.objects,
                deep=deep,
                progress=progress.update,
                orphan_age_ms=settings.janitor.orphan_age_ms,
                tier=tier,
            )
    return report, repairs


def _print_repairs(repairs: "Sequence[Repair]") -> None:
    for repair in repairs:
        for problem in repair.damage:
            say(f"[yellow]damaged[/] {escape(f'{repair.where}: {problem.text}')}")
        outcome = "[red]not rebuilt[/]" if repair.failure else "[green]rebuilt[/]"
        say(f"{outcome} {escape(str(repair))}")
    if not repairs:
        say("No indexes of segments are damaged.")
    say("")


def _print_report(report: "Report") -> None:
    say("Checked " + ", ".join(f"{count:,} {noun}" for noun, count in report.counts.items()) + ".")
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
