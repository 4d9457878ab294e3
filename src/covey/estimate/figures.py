"""Figures that are not known exactly, and how a person reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Bound(Enum):
    """Which value of a `Range`."""

    LOW = "low"
    EXPECTED = "expected"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure that is not known exactly.

    Attributes:
        low, high: its bounds.
        expected: the most likely value; between unknown selectivities only their middle.
    """

    low: float
    expected: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value, value)

    @classmethod
    def over(cls, values: Sequence[float]) -> Range:
        """The bounds of some values, of which the first is expected."""
        return cls(min(values), values[0], max(values))

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.expected * factor, self.high * factor)

    def at(self, bound: Bound) -> float:
        value: float = getattr(self, bound.value)
        return value

    def shown(self, show: Callable[[float], str], *, known: bool) -> str:
        """One figure where its bounds read alike, the expected one where it means something."""
        low, middle, high = show(self.low), show(self.expected), show(self.high)
        if math.isinf(self.high):
            return f"at least {low}" if self.low > 0 else "not known"
        if low == high:
            return low
        return f"about {middle} ({low} to {high})" if known else f"{low} to {high}"


ZERO = Range(0.0, 0.0, 0.0)


def size(number: float) -> str:
    """A count, or a size in whole units: `1,234`; below 10 with one decimal where it has one."""
    if math.isinf(number):
        return "any number"
    if number < 9.95 and abs(number - round(number)) > 0.05:
        return f"{number:.1f}"
    return f"{round(number):,}"


def share(part: float) -> str:
    return f"{part:.0%}"


def megabytes(number: float) -> str:
    """Bytes as MB, 10**6 of them, or GB."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{size(number / 1e6)} MB"


def seconds(time: float) -> str:
    """A time: `4.1 ms`, `0.20 s`, `3.4 s`, `45 s`, `2 min 5 s`, `3 h 20 min`, `9 days`."""
    if math.isinf(time):
        return "any time"
    if 0 < time < 0.0995:
        return f"{time * 1e3:.2g} ms"
    if time < 9.95:
        return f"{time:.2f} s" if 0 < time < 0.995 else f"{time:.1f} s"
    whole = round(time)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 100 else f"{hours / 24:,.0f} days"


def money(dollars: float) -> str:
    """US dollars, to the cent; what is less than half a cent is said to be under one."""
    if math.isinf(dollars):
        return "any amount"
    return f"${dollars:,.2f}" if dollars >= 0.005 or dollars == 0 else "under $0.01"
