"""The `covey` command: its subcommands and nothing else.

Modules that are slow to import (duckdb, torch) are imported inside the commands, so
that `covey --help` answers at once.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from covey.cli.bench import app as bench
from covey.cli.cache import app as cache
from covey.cli.demo import demo
from covey.cli.models import models
from covey.cli.query import explain, query

app = typer.Typer(
    name="covey",
    no_args_is_help=True,
    add_completion=False,
    # Plain help everywhere: no boxes, the same on a terminal and in a file.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"covey {version('covey')}")
        raise typer.Exit


@app.callback()
def covey(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Run SQL whose AI functions put rows through a small language model.

    Exit codes: 0 done, 1 the model or the run failed, 2 the SQL or the arguments are wrong.
    """


app.command()(query)
app.command()(explain)
app.command()(models)
app.command()(demo)
app.add_typer(cache, name="cache")
app.add_typer(bench, name="bench")


def main() -> None:
    """Entry point of the `covey` script."""
    app()
