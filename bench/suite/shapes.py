"""How many rows each table has, and how long its texts are, in Qwen3-like tokens.

Row counts and means are those that the benchmark publishes for scale factors 0.1, 0.5 and
1.0; 0.01 is ours. Where it publishes no length, the value is solved from its token totals
(§ `counts`): evidence 440, claims 11 without and 16 with a year, terms 4.75.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.errors import InputError

Int64 = npt.NDArray[np.int64]

SCALES = (0.01, 0.1, 0.5, 1.0)
ROWS: dict[str, tuple[int, int, int, int]] = {
    "reviews": (500, 5_000, 25_000, 50_000),
    "aspects": (12, 12, 12, 12),
    "reports": (50, 500, 2_500, 5_000),
    "terms": (303, 1_127, 2_934, 4_144),
    "claims": (50, 500, 2_500, 5_000),
    "evidence": (42, 287, 1_037, 1_478),
    "citation_contexts": (50, 500, 2_496, 4_972),
    "citation_passages": (48, 433, 1_756, 2_991),
    "agent_traces": (177, 1_772, 8_859, 17_711),
}
TRAJECTORIES = (38, 376, 1_880, 3_760)


@dataclass(frozen=True, slots=True)
class Length:
    """A right-skewed distribution of lengths: log-normal, cut off on both sides.

    Attributes:
        mean: tokens, of the first `ROWS[table][1]` rows exactly (scale factor 0.1).
        spread: standard deviation of the logarithm.
        low, high: bounds in tokens.
    """

    mean: float
    spread: float
    low: int
    high: int


LENGTHS = {
    "reviews": Length(299.0, 0.65, 20, 2_000),
    "reports": Length(4_060.0, 0.55, 60, 24_000),
    "evidence": Length(440.0, 0.60, 30, 4_000),
    "citation_contexts": Length(212.0, 0.45, 15, 1_200),
    "citation_passages": Length(59.1, 0.50, 8, 400),
}
CLAIM_TOKENS = Length(11.0, 0.30, 5, 30)
CLAIM_WITH_YEAR_TOKENS = Length(16.2, 0.20, 10, 34)
TERM_TOKENS = 4.75

# Agent traces: the published total, cap and quantiles of scale factor 0.1.
TRACE_CAP = 24_000
TRACE_TOTAL = 17_252_669
TURNS_A_SNAPSHOT = 5
MOST_SNAPSHOTS = 10


def scale_index(scale: float) -> int:
    """The position of a scale factor in `SCALES`; InputError lists them."""
    if scale not in SCALES:
        known = ", ".join(str(each) for each in SCALES)
        raise InputError(f"There is no scale factor {scale}. Known: {known}.")
    return SCALES.index(scale)


def rows(table: str, scale: float) -> int:
    """Rows of a table at a scale factor."""
    return ROWS[table][scale_index(scale)]


def draw_lengths(rng: np.random.Generator, shape: Length, count: int, exact: int) -> Int64:
    """(count,) lengths; the first `exact` of them have the mean, to a token in all.

    A shorter table is a prefix of a longer one, so all lengths are drawn at once.
    """
    drawn = rng.lognormal(0.0, shape.spread, size=count)
    low, high = 1e-3, 1e6
    for _ in range(60):  # the factor that gives the mean, cut-off included: bisection
        factor = np.sqrt(low * high)
        mean = np.clip(drawn[:exact] * factor, shape.low, shape.high).mean()
        low, high = (factor, high) if mean < shape.mean else (low, factor)
    lengths = np.clip(np.rint(drawn * low), shape.low, shape.high).astype(np.int64)
    return _spread_rest(lengths, round(shape.mean * exact), exact, shape)


def _spread_rest(lengths: Int64, total: int, exact: int, shape: Length) -> Int64:
    """Add or take single tokens, row by row, until the first rows have the total."""
    rest = total - int(lengths[:exact].sum())
    step = 1 if rest > 0 else -1
    while rest:
        room = (lengths[:exact] < shape.high) if rest > 0 else (lengths[:exact] > shape.low)
        chosen = np.flatnonzero(room)[: abs(rest)]
        lengths[chosen] += step
        rest -= step * len(chosen)
    return lengths
