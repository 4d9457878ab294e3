"""From the model's scores to SQL values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.logical.calls import AICall, OnError, Reading


def read_answers(
    call: AICall, scores: npt.NDArray[np.float64], reasons: Sequence[str | None]
) -> pa.Array:
    """What a call shows of its answers.

    Args:
        call: how they are read.
        scores: (n, question.width) float64 as the engine gave them; NaN is no answer.
        reasons: (n,) why a prompt failed; empty unless the call shows it.

    Returns:
        (n,) Arrow array of the call's SQL type, NULL where there is no answer; structs
        of value and error where the call shows reasons.
    """
    values = read_scores(call, scores)
    if call.options.on_error is not OnError.VALUE:
        return values
    errors = pa.array(reasons, pa.string())
    return pa.StructArray.from_arrays([values, errors], ["value", "error"])


def read_scores(call: AICall, scores: npt.NDArray[np.float64]) -> pa.Array:
    """The values of a call's answers, NULL where there is none; see `read_answers`."""
    missing = np.isnan(scores[:, 0])
    if call.reading is Reading.LABEL:
        best = np.argmax(np.nan_to_num(scores, nan=-np.inf), axis=1)
        labels = pa.array([label.text for label in call.question.labels], pa.string())
        return labels.take(pa.array(best, mask=missing))
    margins = scores[:, 0]
    if call.reading is Reading.MARGIN:
        return pa.array(margins, mask=missing)
    if call.reading is Reading.SCORE:
        return pa.array(sigmoid(margins), mask=missing)
    with np.errstate(invalid="ignore"):
        # Ties are FALSE.
        return pa.array(margins > log_odds(call.options.threshold), mask=missing)


def sigmoid(margins: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
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
