"""What the models themselves said, kept beside the records: a pair of arrays a question.

Of a question with many prompts a sample is kept, the same for every engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suite.oracle import Floats
from suite.shapes import Int64

MOST_KEPT = 4_000  # prompts of a question
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: its multiples lie evenly


@dataclass(frozen=True, slots=True)
class Said:
    """What the model itself said about some prompts of one question.

    Attributes:
        template: the question.
        rows: (n, documents) int64, rows of the documents' tables.
        scores: (n, 1) margins, or (n, 2) the best label's number and log-probability.
    """

    template: str
    rows: Int64
    scores: Floats


def write_answers(path: Path, said: Iterable[Said], most: int = MOST_KEPT) -> None:
    """Write a file of answers; nothing where nothing was said.

    Args:
        path: of an .npz with `question0`, `rows0`, `scores0`, `question1` …
        said: in any order; a question may come in several parts.
        most: prompts of a question that are kept.
    """
    parts: dict[str, list[Said]] = {}
    for each in said:
        parts.setdefault(each.template, []).append(each)
    arrays: dict[str, np.ndarray] = {}
    for number, (template, own) in enumerate(parts.items()):
        rows = np.concatenate([each.rows for each in own])
        scores = np.concatenate([each.scores for each in own])
        kept = sample(rows, most)
        arrays[f"question{number}"] = np.array(template)
        arrays[f"rows{number}"] = rows[kept].astype(np.int32)
        arrays[f"scores{number}"] = scores[kept].astype(np.float32)
    if arrays:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays)


def sample(rows: Int64, most: int) -> Int64:
    """Which prompts are kept, in their order: by a hash of their rows.

    Args:
        rows: (n, documents) int64.
        most: how many at most.
    """
    if len(rows) <= most:
        return np.arange(len(rows))
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T.astype(np.uint64):
        mixed = (mixed ^ column) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return np.sort(np.argsort(mixed, kind="stable")[:most])
