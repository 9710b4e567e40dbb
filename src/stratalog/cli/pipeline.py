"""`stratalog pipeline`: convert aged records into segments, watch the progress, give orders.

The commands need the control plane and the object store, and no broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import admin_of, opened_admin
from stratalog.cli.options import (
    Config,
    Control,
    Data,
    Json,
    LogLevel,
    Objects,
    Quiet,
    Set,
    Verbose,
    examples,
    log_flags,
    settings_from,
)
from stratalog.cli.output import counted, note, print_json, say
from stratalog.cli.topic import Topic, parse_pairs
from stratalog.clock import SYSTEM_CLOCK
from stratalog.extras import require_spark
from stratalog.ids import PartitionIndex
from stratalog.logs import configure_logs
from stratalog.memory import collect_garbage_rarely
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.admin.tiering import TieringAdmin
    from stratalog.control.pipeline.model import UnitKind
    from stratalog.pipeline.hosting.spark_conf import SparkOptions
    from stratalog.pipeline.report import Report

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Convert aged records into segments, watch the progress, pause and trigger topics.",
    epilog=examples(
        "stratalog pipeline run",
        "stratalog pipeline run --dry-run",
        "stratalog pipeline status orders",
        "stratalog pipeline trigger orders",
        "stratalog pipeline history --limit 5",
    ),
)


class Only(StrEnum):
    MERGE = "merge"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    until_idle: bool = False
    clean: bool = True
    gently: bool = False


Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Convert only this topic. Repeatable."),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where the Spark jobs run: local[*], spark://host:port, sc://host:port or yarn."
        " Default: tiering.master.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Repeatable."),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        "--archive", metavar="FILE", help="A packed environment for executors. Repeatable."
    ),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py-file", metavar="FILE", help="A Python file, zip or wheel for executors. Repeatable."
    ),
]
ExecutorPython = Annotated[
    str | None, typer.Option("--python", metavar="PATH", help="The Python of executors.")
]
OnlyKind = Annotated[Only | None, typer.Option(help="Only merge into segments, or only split.")]
Gently = Annotated[
    bool,
    typer.Option(
        "--gently",
        help="Let other programs on this machine come first: Spark gets a low priority, and"
        " a task reads no more than tiering.task_bytes_per_second.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the work and its cost, and change nothing.")
]
UntilIdle = Annotated[
    bool, typer.Option("--until-idle", help="Run again until there is nothing left to do.")
]
Clean = Annotated[
    bool,
    typer.Option(help="Delete data that is no longer needed. Brokers do the same at intervals."),
]


@app.command(
    epilog=examples(
        "stratalog pipeline run",
        "stratalog pipeline run --until-idle --topic orders",
        "stratalog pipeline run --dry-run",
        "stratalog pipeline run --master spark://host:7077 --archive env.tar.gz#env",
        "stratalog pipeline run --master sc://host:15002 --config broker.toml",
    )
)
def run(
    topics: Topics = None,
    master: Master = None,
    conf: SparkConf = None,
    archives: Archives = None,
    py_files: PyFiles = None,
    python: ExecutorPython = None,
    only: OnlyKind = None,
    gently: Gently = False,
    dry_run: DryRun = False,
    until_idle: UntilIdle = False,
    clean: Clean = True,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    log_level: LogLevel = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Convert aged records once: plan, claim, execute, commit, clean.

    Any number of runs may work at the same time, with or without brokers: they share the work. A
    run can be killed at any point; only its time is lost.
    """
    flags = log_flags(log_level, verbose=verbose, quiet=quiet)
    settings = settings_from(
        config, overrides, data=data, objects=objects, control=control, flags=flags
    )
    configure_logs(settings.log)
    options = _spark_options(settings, master, conf, archives, py_files, python)
    kinds = _kinds(only)
    if dry_run:
        asyncio.run(_show_plan(settings, kinds, topics, json=json))
        return
    from stratalog.pipeline.hosting.signals import run_until_terminated

    choices = RunChoices(until_idle=until_idle, clean=clean, gently=gently)
    report = run_until_terminated(run_pipeline(settings, options, kinds, topics, choices))
    print_report(report, json=json)


def print_report(report: "Report", *, json: bool) -> None:
    if json:
        print_json(report.to_json())
    else:
        for line in report.lines():
            say(escape(line))
    if report.failed:
        raise typer.Exit(1)


def _kinds(only: Only | None) -> "Sequence[UnitKind]":
    from stratalog.control.pipeline.model import UnitKind

    return tuple(UnitKind) if only is None else [UnitKind(only.value)]


def _spark_options(
    settings: Settings,
    master: str | None,
    conf: Sequence[str] | None,
    archives: Sequence[str] | None,
    py_files: Sequence[str] | None,
    python: str | None,
) -> "SparkOptions":
    from stratalog.pipeline.hosting.spark_conf import SparkOptions, place_of

    master = master or settings.tiering.master
    place_of(master)  # Refuses a wrong master before anything is claimed.
    return SparkOptions(
        master=master,
        app_name="stratalog pipeline",
        conf=dict(parse_pairs(conf, "--conf")),
        archives=archives or (),
        py_files=py_files or (),
        python=python,
    )


async def run_pipeline(
    settings: Settings,
    options: "SparkOptions",
    kinds: "Sequence[UnitKind]",
    topics: Sequence[str] | None,
    choices: RunChoices,
) -> "Report":
    require_spark("`stratalog pipeline run`")
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.cli.pipeline_bars import Bars
    from stratalog.pipeline.hosting.spark_jobs import SparkJobs
    from stratalog.pipeline.open import opened_driver
    from stratalog.pipeline.workplace import workplace_of

    collect_garbage_rarely()
    bars = Bars()
    place = workplace_of(settings, gently=choices.gently)
    options = replace(options, yields=choices.gently)
    wait_ms = settings.tiering.executor_wait_ms
    spark = SparkJobs(options, place, clock=SYSTEM_CLOCK, executor_wait_ms=wait_ms, listener=bars)
    opened = opened_driver(
        settings,
        lambda cluster_id, writer: bars.announced(partial(spark.open, cluster_id, writer)),
        clean=choices.clean,
    )
    try:
        async with opened as driver:
            with bars.shown():
                runs = driver.run_until_idle if choices.until_idle else driver.run
                return await runs(kinds, topics)
    finally:
        await spark.close()


async def _show_plan(
    settings: Settings, kinds: "Sequence[UnitKind]", topics: Sequence[str] | None, *, json: bool
) -> None:
    from stratalog.pipeline.hosting.spark_conf import SparkOptions
    from stratalog.pipeline.hosting.spark_jobs import SparkJobs
    from stratalog.pipeline.open import opened_driver
    from stratalog.pipeline.plan.cost import cost_of
    from stratalog.pipeline.workplace import workplace_of

    spark = SparkJobs(
        SparkOptions(master=None),
        workplace_of(settings),
        clock=SYSTEM_CLOCK,
        executor_wait_ms=settings.tiering.executor_wait_ms,
    )
    async with opened_driver(settings, spark.open) as driver:
        plan = await driver.plan(kinds, topics)
    cost = cost_of(plan.tasks)
    waiting = {reason.value: len(found) for reason, found in plan.selection.waiting.items()}
    if json:
        print_json({**cost.to_json(), "waiting": waiting})
        return
    for line in cost.lines():
        say(escape(line))
    left = [f"{counted(count, 'partition')} {reason}" for reason, count in waiting.items()]
    say(escape(f"leave   {', '.join(left) or 'nothing'}"))
    note("Nothing is changed: this was a dry run.")


@app.command(
    epilog=examples("stratalog pipeline status", "stratalog pipeline status orders --json")
)
def status(
    topic: Annotated[
        str | None, typer.Argument(help="Show only this topic, partition by partition.")
    ] = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the converted, the waiting and the parked records of each topic."""
    from stratalog.cli.pipeline_status import print_statuses

    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    statuses = asyncio.run(_statuses(settings, topic))
    if json:
        print_json(statuses)
    else:
        print_statuses(statuses, partitions=topic is not None)


async def _statuses(settings: Settings, topic: str | None) -> list[dict[str, object]]:
    from stratalog.cli.pipeline_status import status_json
    from stratalog.opening.cluster import opened_control
    from stratalog.pipeline.topic_facts import facts_of, topic_facts

    async with opened_control(settings) as control:
        if topic is None:
            facts = facts_of(await control.topics.all(), settings)
        else:
            named = await admin_of(control, settings).topics.find(ANONYMOUS, topic)
            facts = {named.id: topic_facts(named, settings)}
        found = await control.pipeline.tier_status({each: facts[each].age_ms for each in facts})
    now_ms = SYSTEM_CLOCK.now_ms()
    statuses = [status_json(each, facts[each.topic_id].name, now_ms) for each in found]
    return sorted(statuses, key=lambda each: str(each["topic"]))


@app.command(epilog=examples("stratalog pipeline pause orders"))
def pause(
    topic: Topic,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Stop converting a topic. A conversion in progress is finished."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    _order(settings, lambda tiering: tiering.pause(ANONYMOUS, topic))
    say(f"Paused {escape(topic)}: `stratalog pipeline resume` goes on with it.")


@app.command(epilog=examples("stratalog pipeline resume orders"))
def resume(
    topic: Topic,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Go on converting a topic that was paused."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    _order(settings, lambda tiering: tiering.resume(ANONYMOUS, topic))
    say(f"Resumed {escape(topic)}.")


@app.command(epilog=examples("stratalog pipeline trigger orders"))
def trigger(
    topic: Topic,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Have the next runs convert all present records of a topic, whatever their age and size.

    Records that are written later wait as usual.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    if _order(settings, lambda tiering: tiering.trigger(ANONYMOUS, topic)):
        say(f"Triggered {escape(topic)}: the next run converts all that is there now.")
        return
    say(f"Triggered {escape(topic)}.")
    note("It is paused: nothing is converted before `stratalog pipeline resume`.")


@app.command(
    epilog=examples("stratalog pipeline unpark orders", "stratalog pipeline unpark orders 3")
)
def unpark(
    topic: Topic,
    partition: Annotated[
        int | None, typer.Argument(min=0, help="Only this partition. Default: all.")
    ] = None,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Try parked partitions again, after the cause of their failures is removed."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    index = None if partition is None else PartitionIndex(partition)
    found = _order(settings, lambda tiering: tiering.unpark(ANONYMOUS, topic, index))
    if found:
        say(f"{counted(found, 'partition')} of {escape(topic)} will be tried again.")
    else:
        note(f"Nothing is parked there: `stratalog pipeline status {escape(topic)}` shows more.")


def _order(settings: Settings, order: "Callable[[TieringAdmin], Awaitable[T]]") -> T:
    async def work() -> T:
        async with opened_admin(settings) as admin:
            return await order(admin.tiering)

    return asyncio.run(work())


@app.command(
    epilog=examples("stratalog pipeline history", "stratalog pipeline history --limit 1 --json")
)
def history(
    limit: Annotated[int, typer.Option(min=1, help="The number of runs, the newest first.")] = 20,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the last runs: the bytes that they read, wrote and committed, and their speed."""
    from stratalog.cli.pipeline_status import print_runs, run_json

    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    runs = _order(settings, lambda tiering: tiering.runs(ANONYMOUS, limit=limit))
    if json:
        print_json([run_json(each) for each in runs])
    else:
        print_runs(runs)
