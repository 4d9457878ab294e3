"""Slow, independent answers about prompt forests: sets of prefixes, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from covey.prompts.tokens import Tokens

Run = Sequence[int]


def column(runs: Iterable[Run]) -> Tokens:
    runs = [list(run) for run in runs]
    offsets = np.cumsum([0, *(len(run) for run in runs)], dtype=np.int64)
    flat = np.array([token for run in runs for token in run], dtype=np.int32)
    return Tokens(flat, offsets)


def prefixes(runs: Iterable[Run]) -> set[tuple[int, ...]]:
    """Every non-empty prefix of every run: one for each token of their trie."""
    return {tuple(run[: n + 1]) for run in runs for n in range(len(run))}


def minimum_tokens(runs: Iterable[Run]) -> int:
    return len(prefixes(runs))


def forest_minimum(pairs: Iterable[tuple[Run, Run]]) -> int:
    """The trie of the documents, and for each document the trie of its suffixes."""
    pairs = [(tuple(document), tuple(suffix)) for document, suffix in pairs]
    own = minimum_tokens(document for document, _ in pairs)
    below = {(d, s[: n + 1]) for d, s in pairs for n in range(len(s))}
    return own + len(below)


def cut(size: int, budget: int, filled: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ranges of consecutive passes over a stream, each full, the first but for `filled`."""
    edges = [0, *range(budget - filled, size, budget), size]
    return [(np.array([low]), np.array([high])) for low, high in pairwise(edges)]
