"""The `covey` command: its subcommands and nothing else.

Modules that are slow to import (duckdb, torch) are imported inside the commands, so
that `covey --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from covey.cli.bench import app as bench
from covey.cli.cache import app as cache
from covey.cli.demo import demo
from covey.cli.guard import ended
from covey.cli.models import models
from covey.cli.query import SqlCommand, explain, query

# Wrong arguments of every kind: typer has no public name for them, and theirs is elsewhere in
# each of its versions.
_Wrong: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class Commands(TyperGroup):
    """Every command of a group ends as `guard.ended` says, its help and its arguments too."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run what the arguments name, and exit."""
        words = list(sys.argv[1:] if args is None else args)
        sys.exit(ended(partial(self._run, words, prog_name or "covey", extra)))

    def _run(self, words: list[str], name: str, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(name, words, **extra) as context:
                self.invoke(context)
        except typer.Exit as end:
            return end.exit_code
        except _Wrong as error:
            error.show()
            return int(error.exit_code)
        return 0


app = typer.Typer(
    cls=Commands,
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

    Exit codes: 0 done, 1 the model or the run failed, 2 the SQL or the arguments are wrong,
    130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, 141 the reader of a pipe went away.
    """


app.command(cls=SqlCommand)(query)
app.command(cls=SqlCommand)(explain)
app.command()(models)
app.command()(demo)
app.add_typer(cache, name="cache")
app.add_typer(bench, name="bench")
