"""Whether a query ends, with the same answers, on a GPU whose memory runs out.

    python bench/make_checkpoint.py CHECKPOINT --tokenizer TOKENIZER.json
    python bench/hopper oom CHECKPOINT [--rows N]

A query of two conditions runs undisturbed; then other memory of the GPU is filled, once before
the KV cache is made, and once behind it, so that batches find no room for their
activations. Each time the query must end by using less, with counters that add up, and with the
same margins but for rounding: no further apart than where the same limits are given beforehand.
Prints what was given up; the exit status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

import covey
from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel
from hopper.harness import DEVICE, Results, synchronize
from hopper.margins import compare
from hopper.workloads import make_shapes

QUERY = """
    SELECT id, AI.MARGIN(PROMPT('Is the reviewer happy? {0}', body)) AS happy,
           AI.MARGIN(PROMPT('Is it about food? {0}', body)) AS food
    FROM reviews ORDER BY id
"""
# Left free where the KV cache is to find no room, and where only batches are.
_LEFT_BEFORE_CACHE = 6 << 30
_LEFT_FOR_BATCHES = 256 << 20
# How much further apart than with the same limits from the start, in the mean.
_TOLERANCE = 1.5


@dataclass(frozen=True, slots=True)
class Run:
    """What a query gave and counted, and what the engine ended with."""

    margins: np.ndarray
    report: covey.Report
    budget: int
    slots: int


class Held:
    """A model source whose engine is loaded once, and whose limits are set back for each run."""

    def __init__(self, source: LocalModel) -> None:
        self.name, self.kinds, self.profile = source.name, source.kinds, source.profile
        engine = source.open()
        assert isinstance(engine, LoadedEngine)
        self.engine, self._limits = engine, engine.limits

    def open(self) -> LoadedEngine:
        """See `ModelSource.open`."""
        return self.engine

    def reset(self, **limits: int) -> None:
        """Free the KV cache; the next session makes one as was planned, but for some limits."""
        self.engine.limits, self.engine._runner = replace(self._limits, **limits), None
        gc.collect()
        torch.cuda.empty_cache()


def fill(left: int) -> torch.Tensor:
    """Take the GPU's free memory, but for some bytes; without a GPU nothing."""
    free = left
    if DEVICE.type == "cuda":
        synchronize()
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
    return torch.empty(max(free - left, 0), dtype=torch.uint8, device=DEVICE)


def ask(model: Held, texts: list[str]) -> Run:
    """Ask about every text."""
    with covey.connect(model, cache=False, progress=False) as con:
        con.register("reviews", pa.table({"id": range(len(texts)), "body": texts}))
        query = con.run(QUERY)
        table = query.arrow()
    margins = np.stack([table["happy"].to_numpy(), table["food"].to_numpy()], axis=1)
    limits = model.engine.limits
    return Run(margins, query.report, limits.max_batched_tokens, limits.slots)


def check(label: str, found: Run, expected: Run, narrow: Run, results: Results) -> None:
    """Print what a run gave up, and what is wrong with it.

    Args:
        label: of the run.
        found: the run.
        expected: one that nothing disturbed.
        narrow: another with the limits that `found` ended with.
    """
    ours, theirs = found.report.counters, expected.report.counters
    print(f"{label}: batches of {found.budget:,} tokens, room for {found.slots:,}")
    for note in found.report.notes:
        print(f"  {note}")
    apart, usual = (
        compare(expected.margins.ravel(), run.margins.ravel()) for run in (found, narrow)
    )
    print(
        f"  margins of a spread of {apart['spread']:.1f} differ by {apart['mean']:.2f} in the mean"
        f" ({usual['mean']:.2f} with these limits from the start),"
        f" {apart['flips']:.0f} of 10,000 flipped ({usual['flips']:.0f});"
        f" {ours.fresh_tokens:,} tokens computed for {theirs.fresh_tokens:,},"
        f" peak {ours.peak_slots:,}, {ours.evictions:,} evictions"
    )
    results[label] = apart
    checks = {
        "nothing ran out": bool(found.report.notes),
        "a margin is missing": not np.isnan(found.margins).any(),
        "margins differ": apart["mean"] <= _TOLERANCE * usual["mean"],
        "prompts were lost or counted twice": ours.prompts == theirs.prompts,
        "requested tokens do not add up": ours.requested_tokens == theirs.requested_tokens,
        "fewer tokens than the minimum": ours.fresh_tokens >= ours.minimum_tokens > 0,
        "the peak is above the KV cache": 0 < ours.peak_slots <= expected.slots,
    }
    for fault, good in checks.items():
        if not good:
            results.fail(f"{label}: {fault}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--rows", type=int, default=600)


def run(options: argparse.Namespace, results: Results) -> None:
    """Run the query five times."""
    model = Held(LocalModel(options.checkpoint, device=DEVICE.type))
    (shape,) = make_shapes(options.checkpoint, "filter-reviews")
    texts = shape.anchors[: options.rows]
    expected = ask(model, texts)
    print(f"undisturbed: batches of {expected.budget:,} tokens, room for {expected.slots:,}")
    for note in expected.report.notes:
        results.fail(f"undisturbed: {note}")

    model.reset()
    ballast = fill(_LEFT_BEFORE_CACHE)
    small = ask(model, texts)
    del ballast
    model.reset(max_batched_tokens=small.budget, slots=small.slots)
    check("no room for the KV cache", small, expected, ask(model, texts), results)

    model.reset()
    model.engine._ready()
    ballast = fill(_LEFT_FOR_BATCHES)
    narrow = ask(model, texts)
    del ballast
    model.reset(max_batched_tokens=narrow.budget)
    check("no room for batches", narrow, expected, ask(model, texts), results)
    if results.good:
        print("all as it should be")
