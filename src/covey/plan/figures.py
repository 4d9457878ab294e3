"""Figures as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Callable

from covey.plan.forecast import Range


def span(found: Range, show: Callable[[float], str], *, known: bool) -> str:
    """A range: one figure where its bounds read alike, an expected one where it means something."""
    low, middle, high = show(found.low), show(found.expected), show(found.high)
    if math.isinf(found.high):
        return f"at least {low}" if found.low > 0 else "not known"
    if low == high:
        return low
    return f"about {middle} ({low} to {high})" if known else f"{low} to {high}"


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
