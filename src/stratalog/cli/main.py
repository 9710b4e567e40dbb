"""The entry point of the command line: the commands, and the way their errors are shown."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stratalog.cli import (
    backup,
    bench,
    cluster,
    consume,
    control,
    fsck,
    group,
    inspect,
    pipeline,
    produce,
    restore,
    segments,
    store,
    topic,
    up,
)
from stratalog.cli.options import examples, prose
from stratalog.cli.output import print_error
from stratalog.errors import StratalogError


class Commands(TyperGroup):
    """Shows expected errors as one line, with a traceback only if --debug is given."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # The reader of the output has gone. Typer ends quietly.
        except (StratalogError, OSError) as error:
            if ctx.params["debug"]:
                raise
            print_error(error)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "stratalog up",
        "echo hello | stratalog produce greetings",
        "stratalog consume greetings --from-beginning",
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stratalog {version('stratalog')}")
        raise typer.Exit


@app.callback()
def stratalog(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Stratalog: a Kafka-compatible log that lives in object storage."""


app.command(help=prose(up.up), epilog=up.EPILOG)(up.up)
app.add_typer(topic.app, name="topic")
app.add_typer(cluster.app, name="cluster")
app.add_typer(group.app, name="group")
app.add_typer(segments.app, name="segments")
app.add_typer(store.app, name="store")
backup.app.command("restore", help=prose(restore.restore), epilog=restore.RESTORE_EPILOG)(
    restore.restore
)
app.add_typer(backup.app, name="backup")
app.add_typer(control.app, name="control")
app.add_typer(pipeline.app, name="pipeline")
app.command(help=prose(produce.produce), epilog=produce.EPILOG)(produce.produce)
app.command(help=prose(consume.consume), epilog=consume.EPILOG)(consume.consume)
app.command(help=prose(inspect.inspect), epilog=inspect.EPILOG)(inspect.inspect)
app.command(help=prose(fsck.fsck), epilog=fsck.EPILOG)(fsck.fsck)
app.command(help=prose(bench.bench), epilog=bench.EPILOG)(bench.bench)


def run() -> None:
    app()


if __name__ == "__main__":
    run()
