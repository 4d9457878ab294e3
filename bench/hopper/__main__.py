"""Measure Covey on a Hopper GPU.

    python bench/make_checkpoint.py CHECKPOINT --tokenizer TOKENIZER.json
    python bench/hopper shapes CHECKPOINT --runs 2 --json FIGURES.json
    python bench/hopper oom CHECKPOINT
    python bench/hopper COMMAND --help

Needs an H100, H200 or H20 and covey[gpu]; without a GPU what needs none runs on the processor.
Figures are printed as they are found, and written as JSON with --json. The exit status is 1 where
an error is too large or something failed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

COMMANDS = {
    "shapes": "time the six shapes of work through engine and scheduler",
    "peers": "time the six shapes on another engine, on the same token ids",
    "kernels": "errors and times of each kernel, of products beside DeepGEMM and torch",
    "model": "a whole model without a scheduler: errors, margins, speed",
    "flips": "answers of a trained model that depend on the schedule, or on FP8",
    "options": "what the faster, lossier options gain, and how many answers they flip",
    "oom": "whether a query ends, with the same answers, where memory runs out",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in COMMANDS:
        lines = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
        print(f"{__doc__}\nCommands:\n{lines}")
        return 0 if given in ([], ["-h"], ["--help"]) else 2
    command = importlib.import_module(f"hopper.{given[0]}")
    parser = argparse.ArgumentParser(
        prog=f"python bench/hopper {given[0]}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(given[1:])
    results = importlib.import_module("hopper.harness").Results(options.json)
    try:
        command.run(options, results)
    finally:
        results.save()
    return 0 if results.good else 1


if __name__ == "__main__":
    # `python bench/hopper` puts this folder on the path, not the one that holds the package.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
