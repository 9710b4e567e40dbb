"""`stratalog cluster`: the settings that all brokers of a cluster share."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import opened_admin
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
from stratalog.cli.output import note, print_json, print_table, say
from stratalog.cli.timestamps import format_time
from stratalog.settings import Settings

if TYPE_CHECKING:
    from stratalog.control.settings.model import ClusterSetting

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look at the cluster as a whole, and change its settings.",
    epilog=examples("stratalog cluster config list --data ./data"),
)
config_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The settings that all brokers share, because any of them deletes for the whole cluster.",
    epilog=examples(
        "stratalog cluster config list --data ./data",
        "stratalog cluster config set topic.retention.ms 30d --data ./data",
    ),
)
app.add_typer(config_app, name="config")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The setting, as in a settings file.")]


@config_app.command("list", epilog=examples("stratalog cluster config list --data ./data"))
def list_(
    json: Json = False,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """List the values of the cluster, and who set them when."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    lines = [
        {
            "setting": one.name,
            "value": one.value,
            "changed": format_time(one.changed_ms),
            "by": one.changed_by,
        }
        for one in asyncio.run(_all(settings))
    ]
    if json:
        print_json(lines)
    elif lines:
        print_table(list(lines[0]), [list(line.values()) for line in lines])
    else:
        note("The cluster has no settings yet: its first broker gives it its own.")


@config_app.command(
    "set", epilog=examples("stratalog cluster config set topic.retention.ms 30d --data ./data")
)
def set_(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="With a unit, such as 30d.")],
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Change a setting for all brokers. They follow with the janitor's next run."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    changed = asyncio.run(_set(settings, name, value))
    say(f"{escape(changed.name)} = {escape(changed.value)}")


@config_app.command(
    "unset", epilog=examples("stratalog cluster config unset topic.retention.ms --data ./data")
)
def unset(
    name: Name,
    data: Data = None,
    objects: Objects = None,
    control: Control = None,
    config: Config = None,
    overrides: Set = None,
) -> None:
    """Give a setting its default again, for all brokers."""
    settings = settings_from(config, overrides, data=data, objects=objects, control=control)
    changed = asyncio.run(_set(settings, name, None))
    say(f"{escape(changed.name)} = {escape(changed.value)}")


async def _all(settings: Settings) -> "list[ClusterSetting]":
    async with opened_admin(settings) as admin:
        return await admin.cluster_settings.all(ANONYMOUS)


async def _set(settings: Settings, name: str, value: str | None) -> "ClusterSetting":
    async with opened_admin(settings) as admin:
        if value is None:
            return await admin.cluster_settings.unset(ANONYMOUS, name)
        return await admin.cluster_settings.set(ANONYMOUS, name, value)
