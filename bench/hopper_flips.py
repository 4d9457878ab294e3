"""Answers of a real checkpoint on a GPU in three schedules, and beside float32 on the CPU.

    python bench/hopper_flips.py MODEL [--tickets 120] [--pairs 30] [--fast fp8-blocks ...]

MODEL is a folder, a GGUF file or a known name. The prompts are the repository's support tickets
under some questions, and pairs of tickets and policies. Random weights amplify rounding; only a
trained model's margins tell how often an answer depends on what shared its batch. With --fast,
the same under each of these options alone.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

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


def opened(model: str, device: str, fast: Sequence[str] = ()) -> LoadedEngine:
    """A model on a device."""
    engine = LocalModel(model, device=device, fast=fast).open()
    if not isinstance(engine, LoadedEngine):
        raise SystemExit(f"{model} is no local model")
    return engine


def print_flips(label: str, engine: LoadedEngine, work: Sequence[Shape], exact: np.ndarray) -> None:
    """Compare three schedules with each other, and the first with exact margins."""
    runs = [schedules(engine, shape) for shape in work]
    found = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    first, *others = found.items()
    print(f"{label}: {len(exact):,} prompts, spread {first[1].std():.2f}; beside {first[0]}:")
    for name, margins in others:
        print_difference(name, first[1], margins)
    print_difference("float32 on the CPU", first[1], exact)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description="Count answers that depend on the schedule.")
    parser.add_argument("model")
    parser.add_argument("--tickets", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--fast", nargs="*", default=[])
    options = parser.parse_args(arguments)
    print(versions())
    work = shapes(options.tickets, options.pairs)
    plain = opened(options.model, "cpu")
    exact = np.concatenate([run_shape(plain, shape).margins for shape in work])
    for fast in ((), *((name,) for name in options.fast)):
        print_flips(", ".join(fast) or "as it is", opened(options.model, "cuda", fast), work, exact)
        gc.collect()
        torch.cuda.empty_cache()  # the next finds no room otherwise
    return 0


if __name__ == "__main__":
    sys.exit(main())
