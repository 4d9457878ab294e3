"""Answers of a real checkpoint on a GPU in three schedules, and beside float32 on the CPU.

    python bench/hopper flips MODEL [--tickets 120] [--pairs 30] [--fast fp8-blocks ...]
    python bench/hopper flips smollm2-135m --tickets 150 --rounded

MODEL is a folder, a GGUF file or a known name. The prompts are the repository's support tickets
under some questions, and pairs of tickets and policies. Random weights amplify rounding; only a
trained model's margins tell how often an answer depends on what shared its batch. With --fast,
the same under each of these options alone.

With --rounded, which needs no GPU, three other questions are asked in float32, and with weights and
the inputs of all products rounded to FP8 in blocks and groups of 64, where an FP8 checkpoint has
128 but SmolLM2's width of 576 has no whole ones. Products are summed in float32, so that rounding
is all that differs.
"""

from __future__ import annotations

import argparse
import csv
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from covey.engine import loaded
from covey.engine.loaded import LoadedEngine
from covey.kernels.base import Activation, AttentionConfig, Weight
from covey.kernels.fp8_format import FP8_LEAST, FP8_MAX
from covey.kernels.reference import ReferenceKernels
from covey.kernels.scales import quantise
from hopper.harness import Results, open_engine
from hopper.margins import compare, print_heading, print_margins, run_shape, schedules
from hopper.workloads import Shape

EXAMPLES = Path(__file__).parents[2] / "examples"
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
ROUNDED = (
    "Is the customer asking for a refund? {0}",
    "Does the customer sound angry? {0}",
    "Is this about a delivery? {0}",
)
_GROUP = 64
PAIR = "Does the policy {1} answer the ticket {0}?"


def texts(name: str, column: str, most: int) -> list[str]:
    """The first texts of an example table, without those that are empty or there before."""
    with (EXAMPLES / name).open(newline="") as file:
        return list(dict.fromkeys(row[column] for row in csv.DictReader(file) if row[column]))[
            :most
        ]


def shapes(tickets: int, pairs: int) -> list[Shape]:
    """A filter for each question, and a join."""
    asked = texts("tickets.csv", "body", tickets)
    found = [Shape(f"question {i}", text, asked, []) for i, text in enumerate(QUESTIONS)]
    return [*found, Shape("join", PAIR, asked[:pairs], texts("policies.csv", "text", 100))]


def print_flips(
    label: str, engine: LoadedEngine, work: Sequence[Shape], exact: np.ndarray, results: Results
) -> None:
    """Compare three schedules with each other, and the first with exact margins."""
    runs = [schedules(engine, shape) for shape in work]
    found = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    (base, first), *others = found.items()
    print(f"{label}, {len(exact):,} prompts, beside {base}:")
    print_heading()
    for name, margins in (*others, ("float32 on the CPU", exact)):
        figures = compare(first, margins)
        results.setdefault(label, {})[name] = figures
        print_margins(name, figures)


class RoundedKernels(ReferenceKernels):
    """The reference, inputs of products rounded to FP8 and widened again."""

    def _activation(self, x: Tensor) -> Activation:
        values, scales = quantise(x, _GROUP, torch.float8_e4m3fn)
        groups = values.float().view(*scales.shape, -1)
        return Activation((groups * scales[:, :, None]).flatten(1))


def rounded_blocks(weight: Weight) -> Weight:
    """A matrix rounded in blocks of 64 x 64, in float32."""
    rows, columns = weight.values.shape
    blocks = weight.values.view(rows // _GROUP, _GROUP, columns // _GROUP, _GROUP)
    scales = blocks.abs().amax((1, 3), keepdim=True).clamp(min=FP8_LEAST) / FP8_MAX
    return Weight(((blocks / scales).to(torch.float8_e4m3fn).float() * scales).view(rows, columns))


def rounded_engine(model: str) -> LoadedEngine:
    """A model on the processor, everything rounded."""

    def choose(config: AttentionConfig, device: Any, dtype: Any, *_: Any) -> tuple[Any, None]:
        return RoundedKernels(config, device, dtype), None

    with (
        mock.patch.object(loaded, "choose_kernels", choose),
        mock.patch.object(loaded, "quantise_weight", rounded_blocks),
    ):
        return open_engine(model, "cpu", fast="fp8-blocks")


def margins_of(engine: LoadedEngine, work: Sequence[Shape]) -> np.ndarray:
    """The margins of all prompts."""
    return np.concatenate([run_shape(engine, shape).margins for shape in work])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("model")
    parser.add_argument("--tickets", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--fast", nargs="*", default=[])
    parser.add_argument("--rounded", action="store_true", help="FP8 beside float32, on a CPU")


def run(options: argparse.Namespace, results: Results) -> None:
    """Run and compare."""
    plain = open_engine(options.model, "cpu")
    if options.rounded:
        work = [Shape(q, q, texts("tickets.csv", "body", options.tickets), []) for q in ROUNDED]
        figures = compare(margins_of(plain, work), margins_of(rounded_engine(options.model), work))
        print_heading()
        print_margins("groups of 64", figures)
        results["groups of 64"] = figures
        return
    work = shapes(options.tickets, options.pairs)
    exact = margins_of(plain, work)
    for fast in ((), *((name,) for name in options.fast)):
        engine = open_engine(options.model, fast=fast)
        print_flips(", ".join(fast) or "as it is", engine, work, exact, results)
        del engine
        gc.collect()
        torch.cuda.empty_cache()  # the next finds no room otherwise
