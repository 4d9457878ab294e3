"""What the faster, lossier options gain, and how many answers they flip, on a GPU.

    python bench/hopper options CHECKPOINT [--only NAME] [--json FILE]

The checkpoint is one for `shapes`, or any folder or .gguf file that the Hopper kernels can
run. Four of the six shapes, reduced, are asked by default and under each option; each run
is made twice and the second is timed, tokenising included. Margins of the same prompts are
compared with the default's: answers that flipped, per 10,000, and the largest default margin of one
that did; mean and largest difference, and the mean with its sign (shift); and the spread (standard
deviation) of the default's margins. The line "other schedule" is the default against itself in
batches of an eighth, documents in the opposite order: the noise that is there anyway.
Errors and times of FP8 attention are those of `kernels --part fp8-attention`.
With random weights flips are to be read beside that noise only; they bound nothing for a
trained model.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.engine.loaded import LoadedEngine, load_engine
from covey.engine.local import LocalModel
from covey.kernels.fast import FAST_NAMES
from covey.models.spec import WeightDtype
from hopper.harness import DEVICE, Results
from hopper.margins import Run, compare, print_heading, print_margins, run_limited, run_shape
from hopper.workloads import Shape, make_shapes

# Anchors of each shape: enough that a run takes one to two seconds on an H200.
ANCHORS = {"filter-reviews": 600, "join-evidence": 30, "join-reports": 8, "filter-traces": 48}
VARIANTS = {name: (name,) for name in FAST_NAMES} | {"both": FAST_NAMES}


def timed(engine: LoadedEngine, shape: Shape) -> tuple[Run, dict[str, float]]:
    """The second of two runs, and its figures."""
    run_shape(engine, shape)
    run = run_shape(engine, shape)
    fresh = run.counters.fresh_tokens
    return run, {
        "seconds": run.seconds, "fresh": fresh, "us_a_token": run.seconds / fresh * 1e6,
    }  # fmt: skip


def load(checkpoint: Path, fast: Sequence[str]) -> LoadedEngine:
    """The model with some options, its rates unmeasured."""
    gc.collect()
    torch.cuda.empty_cache()
    model = LocalModel(checkpoint, device=DEVICE.type, fast=fast)
    return load_engine(model.name, model.files, model.device, model.layout, model.fast)


def run_default(
    checkpoint: Path, shapes: list[Shape], margins: dict[str, np.ndarray], results: Results
) -> None:
    """Time the default, and its noise; leaves its margins by shape."""
    engine = load(checkpoint, ())
    for shape in shapes:
        run, took = timed(engine, shape)
        margins[shape.name] = run.margins
        budget = max(engine.limits.max_batched_tokens // 8, 1)
        noise = compare(run.margins, run_limited(engine, shape, True, max_batched_tokens=budget))
        print(f"{shape.name}: {shape.prompts:,} prompts, {took['fresh']:,} fresh tokens")
        print_margins("default", took)
        print_margins("other schedule", noise)
        results["shapes"][shape.name] = {"default": took, "other schedule": noise}


def run_variant(
    checkpoint: Path,
    name: str,
    shapes: list[Shape],
    default: dict[str, np.ndarray],
    results: Results,
) -> None:
    """Time an option, and compare its margins with the default's."""
    engine = load(checkpoint, VARIANTS[name])

    def measure(shape: Shape) -> None:
        run, figures = timed(engine, shape)
        figures |= compare(default[shape.name], run.margins)
        print_margins(shape.name, figures)
        results["shapes"][shape.name][name] = figures

    for shape in shapes:
        results.attempt(f"{name}, {shape.name}", partial(measure, shape))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--only", choices=VARIANTS, help="this option")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of documents")


def run(options: argparse.Namespace, results: Results) -> None:
    """Measure the default and each option that the checkpoint has."""
    results["shapes"] = {}
    # Blocks are what an FP8 checkpoint holds already.
    fp8 = LocalModel(options.checkpoint).spec.weight_dtype is WeightDtype.FLOAT8
    names: list[Any] = [n for n, ways in VARIANTS.items() if not (fp8 and "fp8-blocks" in ways)]
    if options.only is not None:
        names = [options.only]
    shapes = [
        replace(shape, anchors=shape.anchors[: max(int(ANCHORS[shape.name] * options.scale), 1)])
        for shape in make_shapes(options.checkpoint, ",".join(ANCHORS))
    ]
    print_heading()
    margins: dict[str, np.ndarray] = {}
    default = partial(run_default, options.checkpoint, shapes, margins, results)
    if results.attempt("default", default):
        for name in names:
            print(f"{name}:")
            work = partial(run_variant, options.checkpoint, name, shapes, margins, results)
            results.attempt(name, work)
