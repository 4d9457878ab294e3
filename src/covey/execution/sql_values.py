"""From the model's scores to SQL values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from covey.arrays import Bool, Float64, Int64
from covey.logical.calls import AICall, OnError, Reading
from covey.prompts.question import QuestionKind


def read_answers(call: AICall, scores: Float64, reasons: Sequence[str | None]) -> pa.Array:
    """What a call shows of its answers.

    Args:
        call: how they are read.
        scores: (n, question.width) as the engine gave them; NaN is no answer.
        reasons: (n,) why a prompt failed; empty unless the call shows it.

    Returns:
        (n,) Arrow array of the call's SQL type, NULL where there is no answer; structs
        of value and error where the call shows reasons.
    """
    values = _values(call, scores)
    if call.options.on_error is not OnError.VALUE:
        return values
    errors = pa.array(reasons, pa.string())
    return pa.StructArray.from_arrays([values, errors], ["value", "error"])


def _values(call: AICall, scores: Float64) -> pa.Array:
    margins, missing = scores[:, 0], np.isnan(scores[:, 0])
    if call.question.kind is not QuestionKind.JUDGE:
        return _labels(call, scores, missing)
    if call.reading is Reading.MARGIN:
        return pa.array(margins, mask=missing)
    if call.reading is Reading.SCORE:
        return pa.array(sigmoid(margins), mask=missing)
    return pa.array(true_of(call, scores), mask=missing)


def true_of(call: AICall, scores: Float64) -> Bool:
    """Where a call of AI.IF is TRUE: (n,) of (n, question.width) scores; NaN is not.

    Ties are FALSE.
    """
    with np.errstate(invalid="ignore"):
        found: Bool = scores[:, 0] > log_odds(call.options.threshold)
    return found


def _labels(call: AICall, scores: Float64, missing: Bool) -> pa.Array:
    """The labels of a call's answers, or their probabilities; see `read_answers`."""
    names = pa.array([label.text for label in call.question.labels], pa.string())
    if call.question.kind is QuestionKind.EACH:
        return _each(call, names, scores, missing)
    if call.question.full:
        order = np.argsort(-scores, axis=1, kind="stable")  # ties: the earlier label
        probable = call.reading is Reading.PROBABILITIES
        best = order[:, : call.options.top_k or (order.shape[1] if probable else 1)]
        score = np.take_along_axis(scores, best, axis=1)
    else:
        best, score = np.nan_to_num(scores[:, :1]).astype(np.int64), scores[:, 1:]
    count, width = best.shape
    chosen = np.where(missing[:, None], 0, best)
    if call.options.threshold is not None:
        with np.errstate(invalid="ignore"):
            low = np.exp(score[:, 0]) < call.options.threshold
        chosen[low, 0] = len(names) - 1  # the fallback is the last
    if call.reading is Reading.LABEL:
        return names.take(pa.array(chosen[:, 0], mask=missing))
    flat = names.take(pa.array(chosen[~missing].ravel()))
    offsets = _offsets(np.full(count, width), missing)
    if call.reading is Reading.LABELS:
        return pa.ListArray.from_arrays(offsets, flat)
    probabilities = pa.array(np.exp(score[~missing]).ravel())
    return pa.MapArray.from_arrays(offsets, flat, probabilities)


def _each(call: AICall, names: pa.Array, scores: Float64, missing: Bool) -> pa.Array:
    """The labels that apply by themselves, in the order of the list."""
    count, width = scores.shape
    if call.reading is Reading.PROBABILITIES:
        flat = names.take(pa.array(np.tile(np.arange(width), count - missing.sum())))
        offsets = _offsets(np.full(count, width), missing)
        return pa.MapArray.from_arrays(offsets, flat, pa.array(sigmoid(scores[~missing]).ravel()))
    with np.errstate(invalid="ignore"):
        applies = scores > log_odds(call.options.threshold)
    texts = names
    if call.options.fallback is not None:
        texts = pa.concat_arrays([names, pa.array([call.options.fallback], pa.string())])
        none = ~applies.any(axis=1) & ~missing
        applies = np.column_stack([applies, none])
    _, chosen = np.nonzero(applies)
    offsets = _offsets(applies.sum(axis=1), missing)
    return pa.ListArray.from_arrays(offsets, texts.take(pa.array(chosen)))


def _offsets(sizes: Int64, missing: Bool) -> pa.Array:
    """Offsets of lists of some sizes; a missing list holds nothing, and its offset is NULL."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(np.where(missing, 0, sizes), out=offsets[1:])
    return pa.array(offsets, mask=np.append(missing, False))


def sigmoid(margins: Float64) -> Float64:
    """P(TRUE) / (P(TRUE) + P(FALSE)) from log-odds in nats, without overflow."""
    decay = np.exp(-np.abs(margins))
    return np.where(margins >= 0, 1.0 / (1.0 + decay), decay / (1.0 + decay))


def log_odds(threshold: float | None) -> float:
    """The margin above which AI.IF is TRUE."""
    if threshold is None:
        return 0.0
    if threshold in (0.0, 1.0):
        return -math.inf if threshold == 0.0 else math.inf
    return math.log(threshold) - math.log1p(-threshold)
