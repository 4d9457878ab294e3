"""Random batches: forests in depth-first order with KV cache spans over ranges of rows."""

from __future__ import annotations

import numpy as np

from covey.arrays import Int64
from covey.kernels.base import ForwardBatch

NO_ROWS = np.empty(0, dtype=np.int64)


def forest(parents: list[int], spans: list[tuple[int, int, int, int]]) -> ForwardBatch:
    """A batch from each row's parent (-1 for none) and (row, row, slot, slot) spans."""
    count = len(parents)
    subtree_ends = np.arange(1, count + 1, dtype=np.int32)
    positions = np.zeros(count, dtype=np.int32)
    for row in range(count - 1, -1, -1):
        if parents[row] >= 0:
            subtree_ends[parents[row]] = max(subtree_ends[parents[row]], subtree_ends[row])
    for row, parent in enumerate(parents):
        positions[row] = positions[parent] + 1 if parent >= 0 else 0
    ranges = np.array(spans, dtype=np.int64).reshape(-1, 4)
    return ForwardBatch(
        tokens=np.zeros(count, dtype=np.int32),
        positions=positions,
        subtree_ends=subtree_ends,
        logits_indices=NO_ROWS,
        prefix_rows=ranges[:, :2],
        prefix_slots=ranges[:, 2:],
        slot_mapping=np.full(count, -1, dtype=np.int32),
    )


def random_forest(
    rng: np.random.Generator, rows: int, mean_run: float, kv_cache: int, spans: int = 3
) -> ForwardBatch:
    """About `rows` rows in runs of a mean length that branch anywhere above."""
    parents: list[int] = []
    path: list[int] = []
    while len(parents) < rows:
        del path[int(rng.integers(0, len(path) + 1)) :]
        for _ in range(1 + int(rng.exponential(mean_run))):
            parents.append(path[-1] if path else -1)
            path.append(len(parents) - 1)
    count = len(parents)
    found = []
    for _ in range(spans if kv_cache else 0):
        first, last = sorted(rng.choice(count + 1, 2, replace=False).tolist())
        low, high = sorted(rng.choice(kv_cache + 1, 2, replace=False).tolist())
        found.append((first, last, low, high))
    return forest(parents, found)


def some_rows(rng: np.random.Generator, batch: ForwardBatch, share: float) -> Int64:
    """A random choice of rows, at least one."""
    chosen = np.flatnonzero(rng.random(len(batch)) < share)
    return chosen if len(chosen) else np.array([len(batch) - 1])
