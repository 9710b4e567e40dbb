"""`stratalog control`: the identity of the cluster, and the way out of a halt."""

import asyncio

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
    prose,
    settings_from,
)
from stratalog.cli.output import print_json, print_table, say
from stratalog.cli.restore import (
    REBUILD_EPILOG,
    DryRun,
    SkipUnproven,
    Yes,
    accept_recovered,
    confirm_stopped,
    print_report,
    rebuild,
)
from stratalog.cli.timestamps import format_time
from stratalog.control.identity.model import Cluster, StoreRole
from stratalog.control.writers.model import Writer
from stratalog.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Show the cluster's identity, and go on after its control plane went back.",
    epilog=examples("stratalog control status --config stratalog.toml"),
)


@app.command(epilog=examples("stratalog control status", "stratalog control status --json"))
def status(
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Show the cluster's id and generation, if it is halted and why, and the writers of objects."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    cluster, writers = asyncio.run(_status(settings))
    if json:
        print_json(_as_dict(cluster, writers))
        return
    say(f"cluster     {cluster.cluster_id}")
    say(f"generation  {cluster.generation}")
    for role in StoreRole:
        if (store_id := cluster.id_of(role)) is not None:
            say(f"{role.value:<11} in store {store_id}, claim {cluster.claims_on(role)[-1]}")
    say(f"halted      {'no' if cluster.halted_reason is None else escape(cluster.halted_reason)}\n")
    print_table(
        ["writer", "kind", "broker", "announced", "ended", "commits"],
        [
            [
                writer.name,
                writer.kind.value,
                "-" if writer.broker_id is None else writer.broker_id,
                format_time(writer.announced_ms),
                "-" if writer.ended_ms is None else format_time(writer.ended_ms),
                writer.commits,
            ]
            for writer in writers
        ],
    )


def _as_dict(cluster: Cluster, writers: list[Writer]) -> dict[str, object]:
    return {
        "cluster_id": str(cluster.cluster_id),
        "generation": cluster.generation,
        "stores": {
            role.value: {"store_id": str(store_id), "claim_id": cluster.claims_on(role)[-1]}
            for role in StoreRole
            if (store_id := cluster.id_of(role)) is not None
        },
        "halted_reason": cluster.halted_reason,
        "halted_ms": cluster.halted_ms,
        "writers": [
            {
                "tag": writer.name,
                "kind": writer.kind.value,
                "broker_id": writer.broker_id,
                "announced_ms": writer.announced_ms,
                "ended_ms": writer.ended_ms,
                "commits": writer.commits,
            }
            for writer in writers
        ],
    }


@app.command(
    epilog=examples(
        "stratalog control accept --config stratalog.toml --dry-run",
        "stratalog control accept --data ./data --yes",
    )
)
def accept(
    skip_unproven: SkipUnproven = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Go on with a control plane that went back, after a recovery in time or a fail-over.

    Records that it does not know are first recovered from the object store, as far as their offsets
    are proven. Stop all brokers first. A broker that still runs is fenced at its next write.
    Producers get ids from a later range, so that none of them is taken for another.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    confirm_stopped(settings, yes or dry_run)
    print_report(asyncio.run(accept_recovered(settings, skip_unproven, dry_run)), json)


app.command("rebuild", help=prose(rebuild), epilog=REBUILD_EPILOG)(rebuild)


async def _status(settings: Settings) -> tuple[Cluster, list[Writer]]:
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.opening.cluster import opened_control

    async with opened_control(settings) as control:
        return await control.identity.cluster(), await control.writers.all()
