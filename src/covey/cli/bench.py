"""`covey bench`: the benchmarks of the checkout, run with this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.checkout import in_checkout
from covey.cli.demo import DEMO_MODEL, TICKETS
from covey.cli.guard import connected, in_good_order

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a benchmark.")
# Options belong to the script, also --help.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.callback()
def bench() -> None:
    """Run a benchmark of the source checkout."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def cpu(context: typer.Context) -> None:
    """Measure Covey on this machine's CPU. Further arguments go to bench/cpu.py."""
    script = in_checkout("bench/cpu.py", "covey bench cpu")
    with in_good_order():
        finished = subprocess.run([sys.executable, str(script), *context.args], check=False)
    raise typer.Exit(finished.returncode)


@app.command(context_settings=_PASSED_ON)
def suite(context: typer.Context) -> None:
    """The 50 queries: `run`, `sql`, `published`; further arguments go to bench/suite."""
    _suite(context.args or ["--help"], "suite")


@app.command(context_settings=_PASSED_ON)
def peers(context: typer.Context) -> None:
    """Run a peer on the suite's queries, in its own process and environment."""
    _suite(["peers", *context.args], "peers")


@app.command(context_settings=_PASSED_ON)
def report(context: typer.Context) -> None:
    """Write report.md, results.csv and plots from a folder of result files."""
    _suite(["report", *context.args], "report")


@app.command(context_settings=_PASSED_ON)
def compare(context: typer.Context) -> None:
    """Compare two folders of result files query by query."""
    _suite(["compare", *context.args], "compare")


@app.command()
def quality(
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="A name or a path.")
    ] = DEMO_MODEL,
    rows: Annotated[int, typer.Option("--rows", min=2, help="Texts to measure.")] = 68,
    movie_reviews: Annotated[
        str,
        typer.Option(
            "--movie-reviews",
            metavar="ZIP",
            help="Measure rated sentences of the vaderSentiment 0.5 source package instead.",
        ),
    ] = "",
) -> None:
    """Compare answers to the example tickets with hand labels, way by way."""
    path = movie_reviews or str(in_checkout(TICKETS, "covey bench quality"))

    from covey.cli.quality import measure, measure_snippets

    with connected(model) as connection:
        table = measure_snippets if movie_reviews else measure
        typer.echo(table(connection, path, rows))


def _suite(arguments: list[str], command: str) -> None:
    script = in_checkout("bench/suite/__main__.py", f"covey bench {command}")
    paths = [str(Path(script).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with in_good_order():
        finished = subprocess.run(
            [sys.executable, "-m", "suite", *arguments], check=False, env=environment
        )
    raise typer.Exit(finished.returncode)
