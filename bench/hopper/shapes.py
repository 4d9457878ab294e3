"""The six shapes of AI-SQL work through the engine and its scheduler, on a GPU.

    python bench/make_checkpoint.py CHECKPOINT --tokenizer TOKENIZER.json
    python bench/hopper shapes CHECKPOINT [--shapes a,b] [--runs 2] [--budget N] [--trace FOLDER]

Each shape runs several times; the first run warms up. Seconds go from handing over the
texts to the last answer, tokenising included, start-up apart; "expected" is what the rates
measured on the device at start make of the counts. With --trace a further run
is profiled: device microseconds a token by part, and the share of time the GPU idles. With
--schedules the same prompts are asked in three schedules: wide batches, narrow batches, and
narrow batches with a KV cache that holds a few documents only, in another order.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.engine.loaded import LoadedEngine
from covey.engine.local import planned_costs
from covey.engine.model_runner import Launched, ModelRunner
from covey.estimate.cost import Work, roofline_seconds
from covey.hardware.devices import gpu_facts
from covey.kernels.base import ForwardBatch
from covey.models.files import ModelFiles
from hopper.harness import DEVICE, Results, open_engine, synchronize
from hopper.margins import Run, compare, print_heading, print_margins, run_shape, schedules
from hopper.workloads import NAMES, Shape, make_shapes

# What each kernel's name begins with or holds, by part; the rest is "other".
_PARTS = {
    "attention": ("flash", "_attend"),
    "gemm": ("gemm", "cutlass", "nvjet", "splitk"),
    "glue": ("rms_norm", "silu_and_mul", "rotate"),
}
_SCHEDULED = 2000  # prompts of a shape that are asked in three schedules


class Counted:
    """Runs batches and counts what they are for the roofline."""

    def __init__(self, runner: ModelRunner, budget: int) -> None:
        self._runner = runner
        self._budget = budget
        self.work = Work()

    def launch(self, batch: ForwardBatch, *rest: Any) -> Launched:
        """See `ModelRunner.launch`."""
        rows = np.arange(len(batch), dtype=np.int64)
        pairs = int((batch.subtree_ends - rows).sum())
        spans = np.diff(batch.prefix_slots)[:, 0]
        pairs += int((np.diff(batch.prefix_rows)[:, 0] * spans).sum())
        distinct = np.unique(batch.prefix_slots, axis=0)
        self.work += Work(
            fresh=len(batch),
            pairs=pairs,
            written=int((batch.slot_mapping >= 0).sum()),
            read=int(np.diff(distinct).sum()),
            passes=len(batch) / self._budget,
        )
        return self._runner.launch(batch, *rest)


def counted_run(engine: LoadedEngine, shape: Shape) -> tuple[Run, Work]:
    """A run in which every batch is counted."""
    found: list[Counted] = []
    make = engine._make_runner

    def counted(slots: int) -> ModelRunner:
        found.append(Counted(make(slots), engine.limits.max_batched_tokens))
        return found[-1]

    engine._make_runner, engine._runner = counted, None
    run = run_shape(engine, shape)
    engine._make_runner, engine._runner = make, None
    return run, found[-1].work


def trace_shape(engine: LoadedEngine, shape: Shape, folder: Path) -> dict[str, float]:
    """Device seconds by part in one profiled run, and what is left of the wall time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run = run_shape(engine, shape)
        synchronize()
    found = dict.fromkeys((*_PARTS, "other"), 0.0)
    kernels: dict[str, tuple[int, float]] = {}
    spans = []
    for event in profiler.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        name = event.name.lower()
        part = next((p for p, keys in _PARTS.items() if any(k in name for k in keys)), "other")
        took = event.time_range.elapsed_us() * 1e-6
        found[part] += took
        count, spent = kernels.get(event.name, (0, 0.0))
        kernels[event.name] = count + 1, spent + took
        spans.append((event.time_range.start, event.time_range.end))
    if not spans:
        raise SystemExit("the profiler saw no kernel: is it blocked on this machine?")
    spans.sort()
    busy = end = 0.0
    for first, last in spans:
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    window = (end - spans[0][0]) * 1e-6
    found |= {"busy": busy * 1e-6, "window": window, "profiled": run.seconds}
    lines = [
        f"{spent:9.4f} s {count:7d}  {name[:110]}"
        for name, (count, spent) in sorted(kernels.items(), key=lambda x: -x[1][1])[:24]
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"kernels-{shape.name}.txt").write_text("\n".join(lines) + "\n")
    tokens = run.counters.fresh_tokens
    cells = [f"{part} {found[part] / tokens * 1e6:.2f}" for part in (*_PARTS, "other")]
    idle = 1 - found["busy"] / window
    print(f"{'':<16}us/token: {', '.join(cells)}; idle {idle:.1%} of {window:.2f} s")
    return found


def print_schedules(engine: LoadedEngine, shape: Shape) -> None:
    """Compare the margins of some prompts of a shape in three schedules."""
    anchors = shape.anchors[: max(_SCHEDULED // max(len(shape.partners), 1), 1)]
    (label, first), *others = schedules(engine, replace(shape, anchors=anchors)).items()
    print(f"{shape.name}, {len(first):,} prompts, beside {label}:")
    print_heading()
    for label, margins in others:
        print_margins(label, compare(first, margins))


def print_shape(shape: Shape, runs: list[Run], warm: Run, expected: float, light: float) -> None:
    """Print two lines of a shape's runs; the figures are those of the fastest."""
    best = min(runs, key=lambda run: run.seconds)
    c = best.counters
    print(
        f"{shape.name:<16}{shape.prompts:9,}{best.seconds:9.2f}{c.requested_tokens:13,}"
        f"{c.fresh_tokens:11,}{c.minimum_tokens:11,}"
        f"{best.seconds / c.fresh_tokens * 1e6:10.2f}{c.batches:8}{c.fill:7.2f}"
        f"{c.host_seconds:7.2f}{c.device_seconds:8.2f}{expected:10.2f}"
    )
    others = ", ".join(f"{run.seconds:.2f}" for run in runs)
    same = all(np.array_equal(run.margins, warm.margins) for run in runs)
    print(
        f"{'':<16}first {warm.seconds:.2f}, then {others} s; margins"
        f" {'equal' if same else 'differ'} from run to run; {best.seconds / light:.2f}x the"
        f" speed of light, {c.requested_tokens / best.seconds * 6e-8:.2f} billion requested"
        " tokens a minute",
        flush=True,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--shapes", default=",".join(NAMES), help="some of them, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of documents")
    parser.add_argument("--budget", type=int, help="new tokens of a batch")
    parser.add_argument("--runs", type=int, default=2, help="timed runs of each shape")
    parser.add_argument("--trace", type=Path, help="folder for lists of kernels")
    parser.add_argument("--schedules", action="store_true", help="compare three schedules")


def run(options: argparse.Namespace, results: Results) -> None:
    """Run the shapes asked for."""
    engine = open_engine(options.checkpoint)
    if options.budget:
        engine.limits = replace(engine.limits, max_batched_tokens=options.budget)
    limits, on_gpu = engine.limits, DEVICE.type == "cuda"
    device = gpu_facts(torch.cuda.get_device_name()) if on_gpu else None
    costs = planned_costs(ModelFiles(options.checkpoint).spec, on_gpu, limits.max_batched_tokens)
    rates = engine.rates()
    print(f"batches of {limits.max_batched_tokens:,} tokens, KV cache of {limits.slots:,}")
    print(
        f"{'shape':<16}{'prompts':>9}{'seconds':>9}{'requested':>13}{'fresh':>11}{'minimum':>11}"
        f"{'us/token':>10}{'batches':>8}{'fill':>7}{'host':>7}{'device':>8}{'expected':>10}"
    )
    for shape in make_shapes(options.checkpoint, options.shapes, options.scale):
        warm, work = counted_run(engine, shape)
        runs = [run_shape(engine, shape) for _ in range(options.runs)]
        light = roofline_seconds(work, costs, device) if device else float("nan")
        expected = rates.seconds(work)
        print_shape(shape, runs, warm, expected, light)
        parts = trace_shape(engine, shape, options.trace) if options.trace else {}
        if options.schedules:
            print_schedules(engine, shape)
        results.setdefault("shapes", {})[shape.name] = {
            "prompts": shape.prompts,
            "seconds": [run.seconds for run in runs],
            "counters": asdict(min(runs, key=lambda run: run.seconds).counters),
            "speed_of_light": light,
            "expected": expected,
            "parts": parts,
        }
        results.save()
