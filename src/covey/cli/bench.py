"""`covey bench`: the benchmarks of the checkout, run with this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

from covey.cli.checkout import in_checkout
from covey.cli.guard import in_good_order

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a benchmark.")
# Options belong to the script, also --help.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def cpu(context: typer.Context) -> None:
    """Measure Covey on this machine's CPU. Further arguments go to bench/cpu.py."""
    _script("cpu", context.args)


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


@app.command(context_settings=_PASSED_ON)
def quality(context: typer.Context) -> None:
    """Compare answers to the example tickets with hand labels, way by way."""
    _script("quality", context.args)


def _script(name: str, arguments: list[str]) -> None:
    """Run a script of bench/ and end as it does."""
    script = in_checkout(f"bench/{name}.py", f"covey bench {name}")
    with in_good_order():
        finished = subprocess.run([sys.executable, str(script), *arguments], check=False)
    raise typer.Exit(finished.returncode)


def _suite(arguments: list[str], command: str) -> None:
    script = in_checkout("bench/suite/__main__.py", f"covey bench {command}")
    paths = [str(Path(script).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with in_good_order():
        finished = subprocess.run(
            [sys.executable, "-m", "suite", *arguments], check=False, env=environment
        )
    raise typer.Exit(finished.returncode)
