"""How well a model's judgements agree with labels that people gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Agreement:
    """Figures over the rows that have both an answer and a label; all in [0, 1].

    Attributes:
        rows: how many rows that is.
        positive: share of rows labelled TRUE.
        accuracy: share of rows whose answer is the label.
        majority: accuracy of giving every row the commoner label.
        balanced: mean of the accuracies on the TRUE rows and on the FALSE rows;
            0.5 is chance.
        auc: probability that a TRUE row's margin is above a FALSE row's, ties half
            (the area under the ROC curve); 0.5 is chance.
    """

    rows: int
    positive: float
    accuracy: float
    majority: float
    balanced: float
    auc: float


def agreement(labels: Sequence[bool], margins: Sequence[float]) -> Agreement:
    """Compare labels with margins; a margin above 0 is the answer TRUE.

    Args:
        labels: (n,) hand labels, both values present.
        margins: (n,) log-odds of TRUE over FALSE, no NaN.

    Raises:
        ValueError: the lengths differ, or one of the two labels does not occur.
    """
    true = [m for m, label in zip(margins, labels, strict=True) if label]
    false = [m for m, label in zip(margins, labels, strict=True) if not label]
    if not true or not false:
        raise ValueError("agreement needs rows of both labels")
    hits = sum(m > 0 for m in true)
    rejections = sum(m <= 0 for m in false)
    rows = len(labels)
    positive = len(true) / rows
    return Agreement(
        rows=rows,
        positive=positive,
        accuracy=(hits + rejections) / rows,
        majority=max(positive, 1 - positive),
        balanced=(hits / len(true) + rejections / len(false)) / 2,
        auc=_auc(true, false),
    )


def figures(
    labels: Sequence[bool | None], margins: Sequence[float | None]
) -> tuple[int, str, str, str, str]:
    """Rows, accuracy, majority, balanced accuracy and AUC, as text that a person reads.

    Args:
        labels, margins: (n,); rows that lack either, or whose margin is NaN, are left out.
    """
    pairs = [
        (label, margin)
        for label, margin in zip(labels, margins, strict=True)
        if label is not None and margin is not None and not math.isnan(margin)
    ]
    if len({label for label, _ in pairs}) < 2:
        return (len(pairs), "not measured", "", "", "")
    found = agreement([label for label, _ in pairs], [margin for _, margin in pairs])
    accuracy, majority, balanced = (
        f"{share:.0%}" for share in (found.accuracy, found.majority, found.balanced)
    )
    return (found.rows, accuracy, majority, balanced, f"{found.auc:.2f}")


def _auc(true: Sequence[float], false: Sequence[float]) -> float:
    """Mann and Whitney's U over its largest value: pairs in order count one, ties a half."""
    import numpy as np

    below, not_above = (np.searchsorted(np.sort(false), true, side) for side in ("left", "right"))
    return float((below + not_above).sum() / (2 * len(true) * len(false)))
