"""`covey query` and `covey explain`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from covey.cli.destination import Format, destination
from covey.cli.guard import connected
from covey.errors import InputError


class SqlCommand(TyperCommand):
    """A command whose SQL may begin with `--`, a comment there and an option here."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read the arguments; what has white space where an option has its name is SQL."""
        known = {name for option in self.params for name in option.opts + option.secondary_opts}
        return super().parse_args(ctx, [_as_sql(word, known) for word in args])


def _as_sql(word: str, options: set[str]) -> str:
    name = word.partition("=")[0]
    comment = word.startswith("--") and name not in options
    # A blank in front changes nothing in SQL, and makes it no option.
    return f" {word}" if comment and (len(name.split()) > 1 or "\n" in word) else word


Sql = Annotated[
    str,
    typer.Argument(metavar="SQL", help="The query, or - to read it from standard input."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="A name that `covey models` lists, or a path."
    ),
]

FastOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fast",
        metavar="WAY",
        help="fp8-blocks or fp8-attention, also both: faster on a Hopper GPU, with"
        " other answers now and then.",
        show_default=False,
    ),
]


class ProgressForm(Enum):
    """How progress is written where no terminal shows it."""

    PLAIN = "plain"
    JSON = "json"


FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        help="Form of the result; else the suffix of --output, else a table.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the result to a file."),
]
NoProgress = Annotated[
    bool, typer.Option("--no-progress", help="Show no progress lines on the terminal.")
]
ShowReport = Annotated[
    bool,
    typer.Option("--report/--no-report", help="Say on standard error what the run did."),
]
ProgressOption = Annotated[
    ProgressForm | None,
    typer.Option(
        "--progress",
        help="On standard error: a line now and then, or a JSON object an event.",
        show_default=False,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="Where answers are kept between runs; else in the folder that COVEY_CACHE "
        "names, or the platform's.",
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Ask everything anew and keep no answers.")
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        metavar="FILE",
        help="A DuckDB database file to open, for reading and writing; in memory unless given.",
        show_default=False,
    ),
]
ReadOnly = Annotated[
    bool,
    typer.Option("--read-only", help="Open the database for reading, and refuse any change."),
]
MaxCalls = Annotated[int | None, typer.Option("--max-calls", metavar="N", help="Most model calls.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="Most tokens computed.")
]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", metavar="S", help="Longest run.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", metavar="USD", help="Most US dollars.")
]


def query(
    sql: Sql,
    model: Model = None,
    fast: FastOption = None,
    format: FormatOption = None,
    output: Output = None,
    no_progress: NoProgress = False,
    report: ShowReport = True,
    progress: ProgressOption = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    database: Database = ":memory:",
    read_only: ReadOnly = False,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    max_cost: MaxCost = None,
) -> None:
    """Run a query and print its result.

    Files stand in the SQL by path: FROM 'tickets.parquet'. Answers are kept: a command
    that was stopped goes on where it was when it is given again.
    """
    text = read_sql(sql)
    target = destination(format, output)
    if output and not database.startswith(":memory:") and _is_same(output, Path(database)):
        raise InputError(f"--output {output} is the database itself. Name another file.")
    with connected(
        model,
        fast=fast or (),
        database=database,
        read_only=read_only,
        progress=False if no_progress else progress and progress.value,
        cache=_kept(cache, no_cache),
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_seconds=max_seconds,
        max_cost=max_cost,
    ) as connection:
        run = connection.sql(text)
        with closing(run.batches()) as batches:
            target.write(batches)
        if report:
            typer.echo(str(run.report), err=True)


def explain(
    sql: Sql,
    model: Model = None,
    fast: FastOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    analyze: Annotated[
        bool,
        typer.Option("--analyze", help="Run the query, and print what happened beside the plan."),
    ] = False,
    cache: Cache = None,
    no_cache: NoCache = False,
    database: Database = ":memory:",
    read_only: ReadOnly = False,
) -> None:
    """Print a query's plan and what it is expected to cost. Nothing is run but with --analyze."""
    text = read_sql(sql)
    with connected(
        model,
        fast=fast or (),
        database=database,
        read_only=read_only,
        progress=False,
        cache=_kept(cache, no_cache),
    ) as connection:
        form = "json" if as_json else "text"
        typer.echo(connection.explain(text, form, analyze=analyze))


def _is_same(first: Path, second: Path) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        return True  # Neither may be there yet.
    return first.exists() and second.exists() and first.samefile(second)


def _kept(cache: Path | None, no_cache: bool) -> Path | bool:
    """Whether answers are kept between runs, and where, as `covey.connect` takes it.

    Raises:
        InputError: both options are given.
    """
    if cache is not None and no_cache:
        raise InputError("--cache and --no-cache exclude each other.")
    return cache or not no_cache


def read_sql(argument: str) -> str:
    """The SQL of the command line, or of standard input for `-`.

    Raises:
        InputError: there is no SQL in it, or it is not UTF-8.
    """
    where = "standard input" if argument == "-" else "the argument"
    # Whatever the locale says: Python has decoded an argument, and kept what it could not read.
    raw = sys.stdin.buffer.read() if argument == "-" else os.fsencode(argument)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 text (byte {error.start}). Save the query as UTF-8."
        ) from None
    if not text.strip():
        raise InputError(
            f"{where} holds no SQL. Give the query in quotes, or: covey query - < query.sql"
        )
    return text
