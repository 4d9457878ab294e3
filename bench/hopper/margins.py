"""Asking a workload's prompts once, and how far margins of two such runs are apart."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from covey.engine.base import Counters, PromptBatch
from covey.engine.loaded import LoadedEngine
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from hopper.harness import synchronize
from hopper.workloads import Shape

_COLUMNS = ("largest_flipped", "mean", "shift", "largest", "spread")


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
        synchronize()
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


def run_limited(
    engine: LoadedEngine, shape: Shape, backwards: bool = False, **limits: int
) -> np.ndarray:
    """Margins under other limits, anchors in the opposite order or not; in the shape's order."""
    kept = engine.limits
    engine.limits = replace(kept, **limits)
    try:
        if not backwards:
            return run_shape(engine, shape).margins
        found = run_shape(engine, replace(shape, anchors=shape.anchors[::-1])).margins
        return found.reshape(len(shape.anchors), -1)[::-1].ravel()
    finally:
        engine.limits = kept


def schedules(engine: LoadedEngine, shape: Shape) -> dict[str, np.ndarray]:
    """Margins of the same prompts by what shared a batch, a prefix or the KV cache."""
    budget = engine.limits.max_batched_tokens
    return {
        "wide batches": run_shape(engine, shape).margins,
        "narrow batches": run_limited(engine, shape, max_batched_tokens=min(3072, budget)),
        "small cache, backwards": run_limited(
            engine, shape, True, max_batched_tokens=min(2048, budget), slots=40_000
        ),
    }


def compare(default: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """How far margins of the same prompts are apart; those without an answer are left out.

    Returns:
        prompts compared and missing; answers that flipped, per 10,000, and the largest default
        margin of one that did; the mean and the largest difference, the mean with its sign,
        and the standard deviation of the default's margins.
    """
    there = np.isfinite(default) & np.isfinite(other)
    base, found = default[there], other[there]
    off, flipped = np.abs(base - found), (base > 0) != (found > 0)
    return {
        "prompts": len(base),
        "missing": int((~there).sum()),
        "flips": float(flipped.mean() * 1e4) if len(base) else 0.0,
        "largest_flipped": float(np.abs(base[flipped]).max(initial=0.0)),
        "mean": float(off.mean()) if len(base) else 0.0,
        "shift": float((found - base).mean()) if len(base) else 0.0,
        "largest": float(off.max(initial=0.0)),
        "spread": float(base.std()) if len(base) else 0.0,
    }


def print_heading() -> None:
    """Print the names of the figures of `print_margins`."""
    names = ("seconds", "us/token", "flips", "up to", *_COLUMNS[1:])
    print(f"  {'':<32}{''.join(f'{name:>10}' for name in names)}")


def print_margins(label: str, figures: dict[str, float]) -> None:
    """Print a line of "seconds" and "us_a_token", of what `compare` returns, or of both."""
    text = " " * 20
    if "seconds" in figures:
        text = f"{figures['seconds']:10.2f}{figures['us_a_token']:10.2f}"
    if "flips" in figures:
        text += f"{figures['flips']:10.0f}" + "".join(f"{figures[key]:10.3f}" for key in _COLUMNS)
        if figures["missing"]:
            text += f"  {figures['missing']:.0f} without an answer"
    print(f"  {label:<32}{text}", flush=True)
