"""Agent traces: snapshots of one growing text, every fifth turn, rows grouped by run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from suite.shapes import (
    MOST_SNAPSHOTS,
    ROWS,
    TRACE_CAP,
    TRACE_TOTAL,
    TRAJECTORIES,
    TURNS_A_SNAPSHOT,
    Int64,
)
from suite.words import Writer, generator

_TABLE = 90  # of the random numbers' path
_SYSTEM_TOKENS = 200  # of the system prompt, the same in every trace
_ISSUE_TOKENS = (250.0, 0.6)  # mean and spread of the user's issue
_STEP = (2_500.0, 0.30)  # tokens that five turns add: mean over trajectories, spread
_STEP_NOISE = 0.35
_BLOCKS_A_STEP = 2 * TURNS_A_SNAPSHOT  # each turn: the agent's message and the tool's


@dataclass(frozen=True, slots=True)
class Traces:
    """Which snapshots there are.

    Attributes:
        trajectory: (n,) int64, ascending.
        turn: (n,) int64, assistant turns so far.
        tokens: (n,) int64, length of the snapshot.
    """

    trajectory: Int64
    turn: Int64
    tokens: Int64


def plan_traces(seed: int) -> Traces:
    """The snapshots of the largest scale factor; smaller ones are their beginnings.

    Lengths grow by a step of five turns each, a trajectory's own times noise; snapshots above
    the cap are left out, as the benchmark leaves them out. The steps are then scaled so that
    the snapshots of scale factor 0.1 have the published total.
    """
    counts = _snapshots(seed)
    rng = generator(seed, _TABLE, 1)
    starts = _SYSTEM_TOKENS + rng.lognormal(np.log(_ISSUE_TOKENS[0]), _ISSUE_TOKENS[1], len(counts))
    # A trajectory with many snapshots has short steps: it would be above the cap otherwise.
    steps = rng.lognormal(np.log(_STEP[0]), _STEP[1], len(counts)) * np.clip(
        5.0 / counts, 0.75, 1.45
    )
    trajectory = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.arange(len(trajectory)) - np.repeat(first, counts)
    grown = steps[trajectory] * rng.lognormal(0.0, _STEP_NOISE, len(trajectory))
    sums = np.cumsum(grown)
    growth = sums - np.repeat(np.concatenate([[0.0], sums])[first], counts)
    exact = ROWS["agent_traces"][1]
    tokens = _scaled(starts[trajectory], growth, place, exact)
    return Traces(trajectory, (place + 1) * TURNS_A_SNAPSHOT, tokens)


def _snapshots(seed: int) -> Int64:
    """(trajectories,) snapshots of each, so that every scale factor has its row count."""
    rng = generator(seed, _TABLE, 0)
    counts: list[int] = []
    for rows in ROWS["agent_traces"]:
        many = TRAJECTORIES[ROWS["agent_traces"].index(rows)] - len(counts)
        drawn = np.clip(rng.poisson(4.71, many), 1, MOST_SNAPSHOTS)
        rest = rows - sum(counts) - int(drawn.sum())
        while rest:
            step = 1 if rest > 0 else -1
            room = np.flatnonzero(drawn < MOST_SNAPSHOTS if rest > 0 else drawn > 1)
            chosen = rng.choice(room, size=min(abs(rest), len(room)), replace=False)
            drawn[chosen] += step
            rest -= step * len(chosen)
        counts += drawn.tolist()
    return np.array(counts, dtype=np.int64)


def _scaled(starts: np.ndarray, growth: np.ndarray, place: np.ndarray, exact: int) -> Int64:
    """Lengths under the cap, strictly growing in a trajectory, with the exact total."""

    def lengths(factor: float) -> Int64:
        whole = np.rint(starts + growth * factor).astype(np.int64)
        # Those above the cap crowd below it, the last of a trajectory at the top.
        return np.minimum(whole, TRACE_CAP - (MOST_SNAPSHOTS - place) * 40)

    low, high = 0.1, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lengths(middle)[:exact].sum() < TRACE_TOTAL else (low, middle)
    found = lengths(low)
    rest = TRACE_TOTAL - int(found[:exact].sum())
    # Snapshots stand far enough apart for a single token more in each of some.
    for row in np.argsort(found[:exact], kind="stable")[:rest]:
        found[row] += 1
    return found


def write_traces(seed: int, plan: Traces, rows: int) -> Iterator[str]:
    """The text of each of the first `rows` snapshots.

    A snapshot's tokens are the beginning of the next one's in the same trajectory.
    """
    writer = Writer("code")
    system = ["[SYSTEM", "]\n", *_block(writer, generator(seed, _TABLE, 2), _SYSTEM_TOKENS - 2)]
    start = 0
    while start < rows:
        trajectory = int(plan.trajectory[start])
        stop = int(np.searchsorted(plan.trajectory[:rows], trajectory, side="right"))
        ends = plan.tokens[start:stop].tolist()
        rng = generator(seed, _TABLE, 3, trajectory)
        tokens = list(system)
        _message(writer, rng, tokens, "USER", ends[0] // 4 + len(system))
        for end in ends:
            _turns(writer, rng, tokens, end)
            yield "".join(tokens)
        start = stop


def _turns(writer: Writer, rng: np.random.Generator, tokens: list[str], end: int) -> None:
    """Five turns: messages of agent and tool in turn, up to a length in tokens."""
    room = end - len(tokens)
    blocks = max(1, min(_BLOCKS_A_STEP, room // 6))
    bounds = len(tokens) + (np.arange(1, blocks + 1) * room) // blocks
    for i, bound in enumerate(bounds.tolist()):
        _message(writer, rng, tokens, "TOOL" if i % 2 else "ASSISTANT", bound)


def _message(
    writer: Writer, rng: np.random.Generator, tokens: list[str], role: str, end: int
) -> None:
    tokens += ["\n\n", f"[{role}", "]\n"]
    tokens += _block(writer, rng, end - len(tokens))


def _block(writer: Writer, rng: np.random.Generator, count: int) -> list[str]:
    """Prose without a full stop at the end, which would join the blank line in one token."""
    return writer.tokens(rng, count, stop=False)
