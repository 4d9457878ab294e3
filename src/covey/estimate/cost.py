"""What inference work costs: counts that add up, and the time they take.

A piece of work is a forest of prompts (`covey.prompts.forest`): *shared prefixes*, an anchor
document with what stands before and behind it, and *suffixes* behind them. Counts are
expected values and may be fractions; lengths are tokens. All here is data and arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from covey.hardware.devices import Device
from covey.models.spec import ModelCosts

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the members of some set of texts are, in tokens.

    `a | b` are the texts of both, `a + b` one text behind the other, the two chosen
    independently.

    Attributes:
        count: of the texts.
        total, squares: sums of their lengths, and of the squares of these, which the pairs of
            attention grow with.
    """

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, lengths: npt.ArrayLike) -> Lengths:
        """The lengths of known texts, (n,)."""
        values = np.asarray(lengths, np.float64)
        return cls(float(len(values)), float(values.sum()), float((values * values).sum()))

    @classmethod
    def fixed(cls, length: float) -> Lengths:
        """Texts that are all of one length."""
        return cls(1.0, length, length * length)

    @property
    def mean(self) -> float:
        """The mean length, 0 where there are no texts."""
        return self.total / self.count if self.count else 0.0

    @property
    def square(self) -> float:
        """The mean of the squared lengths."""
        return self.squares / self.count if self.count else 0.0

    def __or__(self, other: Lengths) -> Lengths:
        return Lengths(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    def __add__(self, other: Lengths) -> Lengths:
        one, two = self.mean, other.mean
        return Lengths(1.0, one + two, self.square + 2.0 * one * two + other.square)


NO_TEXTS = Lengths()


@dataclass(frozen=True, slots=True)
class Work:
    """The counts of some work. `a + b` is both, one behind the other.

    Attributes:
        prompts: prompts answered.
        requested: full lengths of all prompts, in tokens.
        fresh: tokens computed.
        pairs: (query, key) pairs of attention.
        written: tokens whose keys and values are stored.
        read: tokens whose keys and values are read back from the KV cache.
        peak: most tokens whose keys and values are held at once; the greater of two.
        passes: passes over the weights, a partly filled one as its share.
    """

    prompts: float = 0.0
    requested: float = 0.0
    fresh: float = 0.0
    pairs: float = 0.0
    written: float = 0.0
    read: float = 0.0
    peak: float = 0.0
    passes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.prompts + other.prompts,
            self.requested + other.requested,
            self.fresh + other.fresh,
            self.pairs + other.pairs,
            self.written + other.written,
            self.read + other.read,
            max(self.peak, other.peak),
            self.passes + other.passes,
        )

    def times(self, factor: float) -> Work:
        """The work of `factor` times as many rows."""
        return Work(*(getattr(self, item.name) * factor for item in fields(self)))

    @property
    def axes(self) -> tuple[float, float, float, float, float]:
        """What plans are compared by, less being better."""
        return (self.fresh, self.pairs, self.written, self.read, self.peak)


def prefixes(
    count: float, document: Lengths, around: float, budget: float, *, kept: bool = False
) -> Work:
    """Compute shared prefixes: `count` documents with what all of them have around them.

    Token i of a prefix attends to itself and the i before it, so that a prefix of n tokens has
    n(n + 1)/2 pairs.

    Args:
        count: distinct documents.
        document: their lengths.
        around: tokens that are computed with each of them, such as an instruction.
        budget: fresh tokens of a pass.
        kept: whether their keys and values are stored for work in later passes.
    """
    whole = document + Lengths.fixed(around)
    fresh = count * whole.mean
    held = fresh if kept else 0.0
    return Work(
        fresh=fresh,
        pairs=count * (whole.square + whole.mean) / 2.0,
        written=held,
        peak=held,
        passes=fresh / budget,
    )


def suffixes(
    count: float,
    suffix: Lengths,
    prefix: Lengths,
    budget: float,
    *,
    anchors: float | None = None,
    resident: bool = True,
) -> Work:
    """Compute suffixes behind shared prefixes that are there already: each gives one answer.

    A suffix of s tokens behind a prefix of c has s·c + s(s + 1)/2 pairs. The keys and values
    of a prefix are read once for each pass that holds suffixes of it.

    Args:
        count: prompts.
        suffix: lengths of what is computed for each prompt alone.
        prefix: lengths of what stands before it.
        budget: fresh tokens of a pass.
        anchors: distinct prefixes; None where every prompt has one of its own.
        resident: whether the prefixes are read from the KV cache, not computed in the same pass.
    """
    prefixes_read = count if anchors is None else min(anchors, count)
    fresh = count * suffix.mean
    passes = fresh / budget
    # A prefix is read in as many passes as its suffixes fill, and in one at least.
    readings = max(prefixes_read, passes)
    return Work(
        prompts=count,
        requested=count * (prefix.mean + suffix.mean),
        fresh=fresh,
        pairs=count * (suffix.mean * prefix.mean + (suffix.square + suffix.mean) / 2.0),
        read=readings * prefix.mean if resident else 0.0,
        passes=passes,
    )


def dominates(one: Work, other: Work) -> bool:
    """Whether `one` is nowhere worse than `other`, and somewhere better."""
    return one.axes != other.axes and all(a <= b for a, b in zip(one.axes, other.axes, strict=True))


def frontier(items: Iterable[Item], work: Callable[[Item], Work]) -> list[Item]:
    """The Pareto frontier: the items that no other dominates, in the order given.

    Of items with equal counts the first stays.
    """
    kept: list[Item] = []
    for item in items:
        own = work(item)
        if any(work(k).axes == own.axes or dominates(work(k), own) for k in kept):
            continue
        kept = [k for k in kept if not dominates(own, work(k))]
        kept.append(item)
    return kept


def roofline_seconds(work: Work, costs: ModelCosts, device: Device) -> float:
    """Seconds that no run of this work on this device can be below.

    The sum over projections, MLP and attention of the larger of compute at the datasheet's
    peak and memory traffic at its bandwidth. Weights are read once a pass, keys and values
    as `work` counts them.
    """
    products, bandwidth = device.peak(costs.compute.value), device.bandwidth
    kv = (work.written + work.read) * costs.kv_bytes
    projection = max(
        work.fresh * costs.projection_flops / products,
        work.passes * costs.projection_bytes / bandwidth,
    )
    mlp = max(work.fresh * costs.mlp_flops / products, work.passes * costs.mlp_bytes / bandwidth)
    pairs = work.pairs * costs.pair_flops / device.peak(costs.attention.value)
    return projection + mlp + max(pairs, kv / bandwidth)
