"""`stratalog store`: say that a store is this cluster's, or that it has lost an object."""

import asyncio
from typing import Annotated

import typer
from rich.markup import escape

from stratalog.cli.lost_objects import MARK_OBJECT_EPILOG, mark_object_lost
from stratalog.cli.options import Config, Control, Data, Objects, Set, examples, settings_from
from stratalog.cli.output import note, say
from stratalog.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Say that a store is this cluster's, or that it has lost an object.",
    epilog=examples("stratalog store claim --config stratalog.toml"),
)


app.command("mark-lost", epilog=MARK_OBJECT_EPILOG)(mark_object_lost)


@app.command(
    epilog=examples(
        "stratalog store claim --config stratalog.toml",
        "stratalog store claim --data ./data --yes",
    )
)
def claim(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Write the marker stratalog.json into a store without it, so that brokers start.

    Brokers refuse a store that has lost the marker, and a new cluster is refused a store that is
    not empty, because it is usually another one: a folder that is not mounted, or a prefix with a
    typo. Use this command only if the store surely is the right one: the marker was deleted, or
    objects were copied without it, or all objects are lost and the cluster shall go on without
    them, or it shall share the place. The marker of another cluster is never replaced.
    """
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    if not yes:
        places = " and ".join(filter(None, (settings.storage.objects, settings.remote.objects)))
        question = (
            f"Brokers will write to {places}, between the objects that are there. Is everything"
            " mounted, and is this the cluster's own store?"
        )
        typer.confirm(question, abort=True)
    claimed = asyncio.run(_claim(settings))
    for url in claimed:
        say(f"Claimed {escape(url)}.")
    if not claimed:
        note("The store has this cluster's marker already: nothing was to do.")


async def _claim(settings: Settings) -> list[str]:
    # Imported late: --help should not wait for databases and object stores.
    from stratalog.opening.cluster import Rights, opened_cluster

    # The check of the stores would refuse, until they are claimed.
    async with opened_cluster(settings, Rights.READ, checked=False) as cluster:
        return await cluster.claim_anew()
