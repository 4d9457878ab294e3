"""Answers of a real checkpoint on a GPU in three schedules, and beside float32 on the CPU.

    python bench/hopper_flips.py MODEL [--tickets 120] [--pairs 30]

MODEL is a folder, a GGUF file or a known name. The prompts are the repository's support tickets
under some questions, and pairs of tickets and policies. Random weights amplify rounding; only a
trained model's margins tell how often an answer depends on what shared its chunk.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel
from gpu_timing import versions
from hopper import print_difference, run_shape, schedules
from hopper_shapes import Shape

EXAMPLES = Path(__file__).parents[1] / "examples"
QUESTIONS = (
    "Is the customer in {0} angry?",
    "Does {0} ask for a refund?",
    "Does {0} report a bug?",
    "Is {0} about a payment?",
    "Does {0} thank somebody?",
    "Is {0} urgent?",
    "Does {0} name a person?",
    "Could {0} be answered without asking back?",
)
PAIR = "Does the policy {1} answer the ticket {0}?"


def texts(name: str, column: str, most: int) -> list[str]:
    """The first texts of an example table."""
    with (EXAMPLES / name).open(newline="") as file:
        return [row[column] for row in csv.DictReader(file)][:most]


def shapes(tickets: int, pairs: int) -> list[Shape]:
    """A filter for each question, and a join."""
    asked = texts("tickets.csv", "body", tickets)
    found = [Shape(f"question {i}", text, asked, []) for i, text in enumerate(QUESTIONS)]
    policies = texts("policies.csv", "text", 100)
    return [*found, Shape("join", PAIR, asked[:pairs], policies)]


def opened(model: str, device: str) -> LoadedEngine:
    """A model on a device."""
    engine = LocalModel(model, device=device).open()
    if not isinstance(engine, LoadedEngine):
        raise SystemExit(f"{model} is no local model")
    return engine


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description="Count answers that depend on the schedule.")
    parser.add_argument("model")
    parser.add_argument("--tickets", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args(arguments)
    engine, exact = opened(options.model, "cuda"), opened(options.model, "cpu")
    print(versions())
    work = shapes(options.tickets, options.pairs)
    runs = [schedules(engine, shape) for shape in work]
    found = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    plain = np.concatenate([run_shape(exact, s).margins for s in work])
    first, *others = found.items()
    print(f"{len(plain):,} prompts, spread {plain.std():.2f}; beside {first[0]}:")
    for label, margins in others:
        print_difference(label, first[1], margins)
    print_difference("float32 on the CPU", first[1], plain)
    return 0


if __name__ == "__main__":
    sys.exit(main())
