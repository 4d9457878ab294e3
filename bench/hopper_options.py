"""What the faster, lossier options gain, and how many answers they turn, on a GPU.

    python bench/hopper_options.py CHECKPOINT [--only NAME] [--json FILE]

The checkpoint is one for bench/hopper.py, or any folder or .gguf file that the Hopper kernels can
run. Four shapes of bench/hopper.py, reduced, are asked by default and under each option; each run
is made twice and the second is timed, tokenising included. Margins of the same prompts are
compared with the default's: answers that turned, per 10,000, and the largest default margin of one
that did; mean and largest difference, and the mean with its sign (shift); and the spread (standard
deviation) of the default's margins. The line "other schedule" is the default against itself in
batches of an eighth, documents in the opposite order: the noise that is there anyway.
Errors of the options' kernels against float64 and their sustained times come first.
With random weights flips are to be read beside that noise only; they bound nothing for a
trained model.
"""

from __future__ import annotations

import argparse
import gc
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
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
from gpu_timing import sustained, versions
from hopper import Run, run_shape
from hopper_margins import compare, print_margins
from hopper_shapes import Shape, make_shape

# Anchors of each shape: enough that a run takes one to two seconds on an H200.
ANCHORS = {"filter-reviews": 600, "join-evidence": 30, "join-reports": 8, "filter-traces": 48}
VARIANTS = {name: (name,) for name in FAST_NAMES} | {"both": FAST_NAMES}
_TIMED_ROWS = 32_768


def timed(engine: LoadedEngine, shape: Shape) -> tuple[Run, dict[str, float]]:
    """The second of two runs, and its figures."""
    run_shape(engine, shape)
    run = run_shape(engine, shape)
    fresh = run.counters.fresh_tokens
    took = {"seconds": run.seconds, "fresh": fresh, "us_a_token": run.seconds / fresh * 1e6}
    return run, took


def other_schedule(engine: LoadedEngine, shape: Shape) -> np.ndarray:
    """The margins in narrow batches, anchors in the opposite order; in the shape's own order."""
    limits = engine.limits
    engine.limits = replace(limits, budget=max(limits.budget // 8, 1))
    try:
        run = run_shape(engine, replace(shape, anchors=shape.anchors[::-1]))
    finally:
        engine.limits = limits
    return run.margins.reshape(len(shape.anchors), -1)[::-1].ravel()


def load(checkpoint: Path, fast: Sequence[str]) -> LoadedEngine:
    """The model with some options, its rates unmeasured."""
    gc.collect()
    torch.cuda.empty_cache()
    model = LocalModel(checkpoint, device="cuda", fast=fast)
    return load_engine(model.name, model.files, model.device, model.layout, model.fast)


def run_default(
    checkpoint: Path, shapes: list[Shape], margins: dict[str, np.ndarray], results: dict[str, Any]
) -> None:
    """Time the default, and its noise; leaves its margins by shape."""
    engine = load(checkpoint, ())
    for shape in shapes:
        run, took = timed(engine, shape)
        margins[shape.name] = run.margins
        noise = compare(run.margins, other_schedule(engine, shape))
        print(f"{shape.name}: {shape.prompts:,} prompts, {took['fresh']:,} fresh tokens")
        print_margins("default", took)
        print_margins("other schedule", noise)
        results["shapes"][shape.name] = {"default": took, "other schedule": noise}


def run_variant(
    checkpoint: Path,
    name: str,
    shapes: list[Shape],
    default: dict[str, np.ndarray],
    results: dict[str, Any],
) -> None:
    """Time an option, and compare its margins with the default's."""
    engine = load(checkpoint, VARIANTS[name])

    def measure(shape: Shape) -> None:
        run, figures = timed(engine, shape)
        figures |= compare(default[shape.name], run.margins)
        print_margins(shape.name, figures)
        results["shapes"][shape.name][name] = figures

    for shape in shapes:
        attempt(f"{name}, {shape.name}", partial(measure, shape), results)


def run_models(
    checkpoint: Path, shapes: list[Shape], names: list[str], results: dict[str, Any]
) -> None:
    """The default, then each option beside it."""
    print_margins(None)
    default: dict[str, np.ndarray] = {}
    done = attempt("default", partial(run_default, checkpoint, shapes, default, results), results)
    for name in names if done else ():
        print(f"{name}:")
        work = partial(run_variant, checkpoint, name, shapes, default, results)
        attempt(name, work, results)


def attempt(label: str, work: Callable[[], object], results: dict[str, Any]) -> bool:
    """Do something whose failure is printed and ends nothing else; whether it was done."""
    started = time.perf_counter()
    try:
        work()
    except Exception as problem:  # whatever CUDA or the engine raises
        text = f"{type(problem).__name__}: {problem}"
        print(f"{label} FAILED: {text}", flush=True)
        results.setdefault("failed", {})[label] = text
        return False
    finally:
        results.setdefault("took", {})[label] = time.perf_counter() - started
    return True


def kernel_errors(results: dict[str, Any]) -> None:
    """Print the errors of the options' kernels; see hopper_errors."""
    import hopper_errors

    torch.manual_seed(secrets.randbelow(2**31))
    for label, error in hopper_errors.fp8_attention_errors():
        hopper_errors.print_error(label, error)
        results.setdefault("errors", {})[label] = error


def attention_times(results: dict[str, Any]) -> None:
    """Print dense attention in BF16 and in FP8, rounding included, us a token of 36 layers."""
    from covey.kernels.base import KvLayer
    from covey.kernels.hopper.flash_attention_fp8 import fp8_attention, is_worth_rounding
    from hopper_cases import (
        KV_HEADS,
        QKV,
        D,
        batch_of,
        flash_attention,
        heads_of,
        kernels,
        normal,
        suffixes,
    )

    kv_cache = KvLayer(normal(9000, KV_HEADS, D), normal(9000, KV_HEADS, D))
    cases = {
        f"{length} tokens behind {anchor:,}": suffixes(_TIMED_ROWS, length, anchor)
        for length, anchor in ((15, 512), (15, 1024), (5, 4096), (5, 8192))
    }
    cases |= {f"runs of {n:,}": batch_of([(n, -1, 0)] * (16384 // n)) for n in (2048, 4096, 8192)}
    print("dense attention, us a token: BF16, FP8 with rounding")
    for label, batch in cases.items():
        q, k, v = heads_of(normal(len(batch), QKV))
        call = kernels().plan(batch).calls[0]
        keys, values = (kv_cache.k, kv_cache.v) if call.prefix else (k, v)
        runs = [
            partial(run, q, keys, values, call, D**-0.5) for run in (flash_attention, fp8_attention)
        ]
        found = [sustained(run, 0.3) / len(batch) * 36e6 for run in runs]
        kept = "" if is_worth_rounding(call) else "  (stays BF16)"
        print(f"  {label:<24}{found[0]:8.3f}{found[1]:8.3f}{kept}", flush=True)
        results.setdefault("attention", {})[label] = found


def reduced_shapes(checkpoint: Path, scale: float) -> list[Shape]:
    """The shapes with fewer anchors, in the words of the model's own tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer.json"
        tokenizer.write_text(LocalModel(checkpoint).encoder.json)
        made = [(make_shape(name, tokenizer), count) for name, count in ANCHORS.items()]
    return [
        replace(shape, anchors=shape.anchors[: max(int(count * scale), 1)]) for shape, count in made
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the default and each option that the checkpoint has; 1 where anything failed."""
    parser = argparse.ArgumentParser(description="What FP8 options gain and cost.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--only", choices=(*VARIANTS, "kernels"), help="this option or section")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of documents")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    print(versions(), flush=True)
    results: dict[str, Any] = {"versions": versions(), "shapes": {}}
    if options.only in (None, "kernels"):
        for section in (kernel_errors, attention_times):
            attempt(section.__name__, partial(section, results), results)
    if options.only != "kernels":
        # Blocks are what an FP8 checkpoint holds already.
        fp8 = LocalModel(options.checkpoint).spec.weight_dtype is WeightDtype.FLOAT8
        every = [name for name, ways in VARIANTS.items() if not (fp8 and "fp8-blocks" in ways)]
        names = every if options.only is None else [options.only]
        run_models(
            options.checkpoint, reduced_shapes(options.checkpoint, options.scale), names, results
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
