"""Orders that were chosen, as records for reports and explain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownSelectivity:
    """The share of a condition's rows that pass, as a decision took it.

    Attributes:
        condition: as the user wrote its calls.
        expected: the mean of its distribution.
        low, high: the central interval of 90%.
        source: "given" by the query, "sampled", "observed" while it ran, or "unknown".
        seen: rows that this rests on.
    """

    condition: str
    expected: float
    low: float
    high: float
    source: str
    seen: int


@dataclass(frozen=True, slots=True)
class Decision:
    """An order that was chosen, or changed, and why.

    Attributes:
        kind: "order" for the first, "sample" before one that rests on samples, "change".
        reason: one sentence.
        order: the conditions, as the user wrote their calls, in the new order.
        before: in the old order; empty for the first.
        seconds: expected time of the rest in the new order, by the selectivities at hand.
        seconds_before: in the old order; None for the first.
        rates: what was known of the selectivities.
        rows: rows of the pipeline's source that were through at the time.
    """

    kind: str
    reason: str
    order: tuple[str, ...]
    before: tuple[str, ...]
    seconds: float
    seconds_before: float | None
    rates: tuple[KnownSelectivity, ...]
    rows: int = 0
