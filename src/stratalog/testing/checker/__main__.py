"""`python -m stratalog.testing.checker`: break brokers for a while, and judge the history."""

import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer
import uvloop

from stratalog.settings import StorageSettings
from stratalog.testing.checker.check import CHECKS, check
from stratalog.testing.checker.faults import DISASTERS, Kind
from stratalog.testing.checker.history import read_history, write_history
from stratalog.testing.checker.recorder import Recorder
from stratalog.testing.checker.report import Report
from stratalog.testing.checker.run import Outcome, Plan, run

_SHOWN_FINDINGS = 10


def main(
    seconds: Annotated[float, typer.Option(min=1, help="How long to write under faults.")] = 60,
    seed: Annotated[
        int | None, typer.Option(help="Of the faults. Not given: a new one, which is printed.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", help="Judge these brokers, and break nothing."),
    ] = None,
    control: Annotated[
        str | None, typer.Option(help="Control plane of the run's own brokers.")
    ] = None,
    objects: Annotated[
        str | None, typer.Option(help="Object store of the run's own brokers.")
    ] = None,
    object_options: Annotated[
        list[str] | None, typer.Option("--object-option", metavar="NAME=VALUE")
    ] = None,
    brokers: Annotated[int, typer.Option(min=1)] = 2,
    groups: Annotated[bool, typer.Option("--groups", help="Read in a consumer group too.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the run's own brokers."),
    ] = None,
    disasters: Annotated[
        str | None, typer.Option(metavar="KIND,KIND", help="Only these of them, or `none`.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="For data, logs and the history. Not given: a temporary one."),
    ] = None,
    judge: Annotated[
        Path | None, typer.Option(help="Run nothing, judge this stored history.")
    ] = None,
) -> None:
    """Run brokers, clients and faults; then heal, read everything, and judge the history.

    It ends with exit code 1 if any violation was found. The folder of the run is kept then.
    """
    if judge is not None:
        raise typer.Exit(_judge(judge))
    place = folder or Path(tempfile.mkdtemp(prefix="stratalog-checker-"))
    plan = Plan(
        seconds=seconds,
        seed=seed if seed is not None else SystemRandom().randrange(2**32),
        bootstrap=bootstrap,
        storage=_storage(place, control, objects, object_options or ()),
        folder=place,
        brokers=brokers,
        groups=groups,
        overrides=overrides or (),
        disasters=_disasters(disasters),
    )
    raise typer.Exit(_run(plan, keep=folder is not None))


def _storage(
    place: Path, control: str | None, objects: str | None, options: Sequence[str]
) -> StorageSettings:
    place.mkdir(parents=True, exist_ok=True)
    return StorageSettings(
        control=control or f"sqlite:{place / 'control.db'}",
        objects=objects or f"file:{place / 'objects'}",
        object_options=dict(each.split("=", 1) for each in options),
    )


def _disasters(names: str | None) -> list[Kind] | None:
    if names is None:
        return None
    known = {str(kind): kind for kind in DISASTERS}
    chosen = [name.strip() for name in names.split(",") if name.strip() != "none"]
    if unknown := [name for name in chosen if name not in known]:
        raise typer.BadParameter(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in chosen]


def _run(plan: Plan, *, keep: bool) -> int:
    # aiokafka logs every broken connection, and the checker breaks connections on purpose.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    typer.echo(f"seed {plan.seed}, folder {plan.folder}")
    outcome = uvloop.run(run(plan, _show_progress))
    typer.echo("", err=True)
    for line in summary(outcome, plan.seed):
        typer.echo(line)
    _show_findings(outcome.report)
    if outcome.ok and not keep:
        shutil.rmtree(plan.folder)
    else:
        typer.echo(f"kept: {_store(outcome, plan.folder)}")
    return 0 if outcome.ok else 1


def _judge(stored: Path) -> int:
    with stored.open() as lines:
        report = check([*read_history(lines)])
    _show_findings(report)
    typer.echo(_verdict(report))
    return 0 if report.ok else 1


def _show_progress(seconds: float, recorder: Recorder) -> None:
    line = f"{seconds:4.0f} s  {recorder.acked:,} acknowledged, {recorder.unseen:,} to be read"
    typer.echo(f"\r{line}, {recorder.under_way:,} under way   ", nl=False, err=True)


def summary(outcome: Outcome, seed: int) -> list[str]:
    """Sum the outcome up in five lines for people."""
    counts, fsck = outcome.report.counts, outcome.fsck
    faults = ", ".join(f"{name} {times}" for name, times in sorted(outcome.faults.items()))
    ends = "nobody looked" if fsck is None else f"{len(fsck.findings) + fsck.left_out} findings"
    memory = f"{outcome.most_memory_bytes >> 20} MiB of memory at the most"
    return [
        f"sent      {counts['sent']:,}: {counts['sent ok']:,} acknowledged,"
        f" {counts['sent unknown']:,} unknown, {counts['sent fail']:,} failed,"
        f" {counts['repeated by plain producers']:,} repeated by plain producers",
        f"read      {counts['records read']:,} records in {counts['polls']:,} polls;"
        f" {'all was read in the end' if outcome.drained else 'NOT ALL could be read in the end'}"
        + (f"; stuck clients: {', '.join(outcome.stuck)}" if outcome.stuck else ""),
        f"faults    {faults or 'none'}; {len(outcome.crashes)} brokers ended by themselves,"
        f" {memory}" + "".join(f"; {mistake}" for mistake in outcome.mistakes),
        f"fsck      {ends}",
        f"verdict   {_verdict(outcome.report) if outcome.report.found or outcome.ok else 'BROKEN'},"
        f" seed {seed}",
    ]


def _verdict(report: Report) -> str:
    if report.ok:
        return f"no violation in {len(CHECKS)} checks"
    return "VIOLATED " + ", ".join(f"{name} {times}" for name, times in report.found.items())


def _show_findings(report: Report) -> None:
    for finding in report.findings[:_SHOWN_FINDINGS]:
        typer.echo(f"  {finding}")


def _store(outcome: Outcome, folder: Path) -> Path:
    with (folder / "history.jsonl").open("w") as file:
        write_history(outcome.history, file)
    findings = {
        **outcome.report.as_dict(),
        "drained": outcome.drained,
        "crashes": outcome.crashes,
        "stuck": outcome.stuck,
        "mistakes": outcome.mistakes,
        "fsck": outcome.fsck.as_dict() if outcome.fsck is not None else None,
    }
    (folder / "report.json").write_text(json.dumps(findings, indent=1))
    return folder


if __name__ == "__main__":
    typer.run(main)
