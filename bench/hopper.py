"""The six shapes of AI-SQL work through the engine and its scheduler, on a GPU.

    python bench/make_checkpoint.py CHECKPOINT --tokenizer TOKENIZER.json
    python bench/hopper.py CHECKPOINT [--shapes a,b] [--budget N] [--trace FOLDER]

Each shape runs several times; the first run warms up. Seconds go from handing over the
texts to the last answer, tokenising included, start-up apart; "expected" is what the rates
measured on the device at start make of the counts. With --trace a further run
is profiled: device microseconds a token by part, and the share of time the GPU idles. With
--schedules the same prompts are asked in three schedules: wide batches, narrow batches, and
narrow batches with a KV cache that holds a few documents only, in another order.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.engine.base import Counters, PromptBatch
from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel, planned_costs
from covey.engine.model_runner import Launched, ModelRunner
from covey.estimate.cost import Work, speed_of_light
from covey.hardware.devices import gpu_facts
from covey.kernels.base import ForwardBatch
from covey.models.files import ModelFiles
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from gpu_timing import versions
from hopper_shapes import NAMES, Shape, make_shape

# What each kernel's name begins with or holds, by part; the rest is "other".
_PARTS = {
    "attention": ("flash", "_attend"),
    "gemm": ("gemm", "cutlass", "nvjet", "splitk"),
    "glue": ("add_rms_norm", "_gate", "_rotate", "rotate"),
}


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


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a shape: seconds, what was counted, and the answers' margins."""

    seconds: float
    counters: Counters
    margins: np.ndarray


def run_shape(engine: LoadedEngine, shape: Shape) -> Run:
    """Ask every prompt of a shape once."""
    documents = DocumentStore()
    with engine.session(documents) as session:
        torch.cuda.synchronize()
        started = time.perf_counter()
        anchors = documents.add(shape.anchors)
        if shape.partners:
            partners = documents.add(shape.partners)
            ids = np.stack(
                [np.repeat(anchors, len(partners)), np.tile(partners, len(anchors))], axis=1
            )
        else:
            ids = anchors[:, None]
        question = Question(QuestionKind.JUDGE, shape.template, ids.shape[1])
        session.submit(PromptBatch(question, ids))
        margins = np.full(len(ids), np.nan)
        for answers in session.run():
            margins[answers.rows] = answers.scores[:, 0]
        seconds = time.perf_counter() - started
        return Run(seconds, session.counters, margins)


def counted_run(engine: LoadedEngine, shape: Shape) -> tuple[Run, Work]:
    """A run in which every batch is counted."""
    found: list[Counted] = []
    make = engine._make_runner

    def counted(slots: int) -> ModelRunner:
        found.append(Counted(make(slots), engine.limits.budget))
        return found[-1]

    engine._make_runner, engine._runner = counted, None
    run = run_shape(engine, shape)
    engine._make_runner, engine._runner = make, None
    return run, found[-1].work


def trace_shape(engine: LoadedEngine, shape: Shape, folder: Path | None) -> dict[str, float]:
    """Device seconds by part in one profiled run, and what is left of the wall time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run = run_shape(engine, shape)
        torch.cuda.synchronize()
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
    if folder is not None:
        lines = [
            f"{spent:9.4f} s {count:7d}  {name[:110]}"
            for name, (count, spent) in sorted(kernels.items(), key=lambda x: -x[1][1])[:24]
        ]
        (folder / f"kernels-{shape.name}.txt").write_text("\n".join(lines) + "\n")
    return found


def schedules(engine: LoadedEngine, shape: Shape) -> dict[str, np.ndarray]:
    """Margins of the same prompts by what shared a batch, a prefix or the KV cache."""
    limits, rows = engine.limits, max(len(shape.partners), 1)
    found = {"wide batches": run_shape(engine, shape).margins}
    engine.limits = replace(limits, budget=min(3072, limits.budget))
    found["narrow batches"] = run_shape(engine, shape).margins
    engine.limits = replace(limits, budget=min(2048, limits.budget), slots=40_000)
    backwards = run_shape(engine, replace(shape, anchors=shape.anchors[::-1])).margins
    found["small KV cache, backwards"] = backwards.reshape(-1, rows)[::-1].ravel()
    engine.limits = limits
    return found


def print_difference(label: str, margins: np.ndarray, other: np.ndarray) -> None:
    """How far two runs' margins are apart, and how many answers differ."""
    off, flipped = np.abs(margins - other), (margins > 0) != (other > 0)
    largest = np.abs(margins[flipped]).max(initial=0.0)
    print(
        f"  {label:<24}mean difference {off.mean():.3f}, largest {off.max():.3f}; flips"
        f" {flipped.mean() * 1e4:.0f} per 10,000, of margins up to {largest:.3f}",
        flush=True,
    )


def print_schedules(engine: LoadedEngine, shape: Shape, sample: int = 2000) -> None:
    """Margins and answers of about `sample` prompts of a shape in three schedules."""
    anchors = shape.anchors[: max(sample // max(len(shape.partners), 1), 1)]
    first, *others = schedules(engine, replace(shape, anchors=anchors)).items()
    print(f"{shape.name}: {len(first[1]):,} margins, spread {first[1].std():.2f}")
    for label, margins in others:
        print_difference(label, first[1], margins)


def print_parts(parts: dict[str, float], tokens: int) -> None:
    """Microseconds a fresh token by part, and the idle share."""
    cells = [f"{p} {parts[p] / tokens * 1e6:.2f}" for p in (*_PARTS, "other")]
    idle = 1 - parts["busy"] / parts["window"]
    print(f"{'':<16}us/token: {', '.join(cells)}; idle {idle:.1%} of {parts['window']:.2f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the shapes asked for."""
    parser = argparse.ArgumentParser(description="Time six shapes of work on a GPU.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--shapes", default=",".join(NAMES))
    parser.add_argument("--budget", type=int, help="new tokens of a batch")
    parser.add_argument("--runs", type=int, default=2, help="timed runs of each shape")
    parser.add_argument("--trace", type=Path, help="folder for lists of kernels")
    parser.add_argument("--schedules", action="store_true", help="compare three schedules")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    engine = LocalModel(options.checkpoint, device="cuda").open()
    if not isinstance(engine, LoadedEngine):
        raise SystemExit("this needs a local model")
    print(f"{versions()}; loaded in {time.perf_counter() - started:.1f} s")
    if options.budget:
        engine.limits = replace(engine.limits, budget=options.budget)
    device = gpu_facts(torch.cuda.get_device_name())
    if device is None:
        raise SystemExit("the speed of light of this GPU is not known")
    spec = ModelFiles(options.checkpoint).spec
    costs = planned_costs(spec, True, engine.limits.budget)
    rates = engine.rates()
    print(f"batches of {engine.limits.budget:,} tokens, KV cache of {engine.limits.slots:,}")
    print(
        f"{'shape':<16}{'prompts':>9}{'seconds':>9}{'requested':>13}{'fresh':>11}{'minimum':>11}"
        f"{'us/token':>10}{'batches':>8}{'fill':>7}{'host':>7}{'device':>8}{'expected':>10}"
    )
    results = {}
    for name in options.shapes.split(","):
        shape = make_shape(name, options.checkpoint / "tokenizer.json")
        warm, work = counted_run(engine, shape)
        runs = [run_shape(engine, shape) for _ in range(options.runs)]
        best = min(runs, key=lambda run: run.seconds)
        c = best.counters
        light = speed_of_light(work, costs, device).total
        expected = rates.seconds(work)
        print(
            f"{name:<16}{shape.prompts:9,}{best.seconds:9.2f}{c.requested_tokens:13,}"
            f"{c.fresh_tokens:11,}{c.minimum_tokens:11,}"
            f"{best.seconds / c.fresh_tokens * 1e6:10.2f}{c.batches:8}{c.fill:7.2f}"
            f"{c.host_seconds:7.2f}{c.device_seconds:8.2f}{expected:10.2f}"
        )
        others = ", ".join(f"{run.seconds:.2f}" for run in runs)
        same = all(np.array_equal(run.margins, warm.margins) for run in runs)
        print(f"{'':<16}first {warm.seconds:.2f}, then {others} s; margins "
              f"{'equal' if same else 'differ'} from run to run; {best.seconds / light:.2f}x the"
              f" speed of light, {c.requested_tokens / best.seconds * 6e-8:.2f} billion requested"
              " tokens a minute", flush=True)  # fmt: skip
        parts = {}
        if options.trace is not None:
            options.trace.mkdir(parents=True, exist_ok=True)
            parts = trace_shape(engine, shape, options.trace)
            print_parts(parts, c.fresh_tokens)
        if options.schedules:
            print_schedules(engine, shape)
        results[name] = {
            "prompts": shape.prompts,
            "seconds": [run.seconds for run in runs],
            "counters": asdict(c),
            "speed_of_light": light,
            "expected": expected,
            "parts": parts,
        }
    if options.json is not None:
        options.json.write_text(json.dumps({"versions": versions(), "shapes": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
