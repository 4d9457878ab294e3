"""The suite's command line; `covey bench suite` and its neighbours call it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from covey.errors import CoveyError
from suite import counts

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="covey bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _published(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except CoveyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _published(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "published", help="hold the generated tables against 30 published token totals"
    )
    command.add_argument("--out", type=Path, help="write the table to this file as well")

    def run(options: argparse.Namespace) -> None:
        text = counts.page(counts.deviations())
        print(text)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(text + "\n", encoding="utf-8")

    command.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
