"""`covey bench`: the benchmarks of the checkout, run with this Python."""

from __future__ import annotations

import subprocess
import sys

import typer

from covey.cli.checkout import in_checkout
from covey.cli.guard import guarded

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a benchmark.")


@app.callback()
def bench() -> None:
    """Run a benchmark of the source checkout."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@guarded
def cpu(context: typer.Context) -> None:
    """Measure Covey on this machine's CPU. Further arguments go to bench/cpu.py."""
    script = in_checkout("bench/cpu.py", "covey bench cpu")
    finished = subprocess.run([sys.executable, str(script), *context.args], check=False)
    raise typer.Exit(finished.returncode)
