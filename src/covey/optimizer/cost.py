"""What inference work costs: counts that add up, and the time they take.

A piece of work is a forest of prompts (`covey.prompts.forest`): *stems*, which are an anchor
document with what stands before and behind it, and *suffixes* behind the stems. Counts are
expected values and may be fractions; lengths are tokens. All here is data and arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from covey.hardware.devices import Device
from covey.hardware.rates import Rates
from covey.models.costs import ModelCosts

Item = TypeVar("Item")

# Shares of the datasheet's peaks that a run is taken to reach where nothing was measured,
# and how far off that may be. On an H200 the products of Qwen3-4B reach 0.58 and attention
# 0.6 of the peak (docs/performance.md has the figures of the whole model).
ASSUMED_SHARE = 0.5
ASSUMED_SPREAD = 2.5


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the members of some set of texts are, in tokens.

    Attributes:
        mean: mean length.
        square: mean of the squared lengths: what the pairs of attention grow with.
    """

    mean: float
    square: float

    @classmethod
    def of(cls, lengths: Sequence[float]) -> Lengths:
        """The lengths of known texts; all 0 where there are none."""
        if not len(lengths):
            return cls(0.0, 0.0)
        count = len(lengths)
        square = sum(float(n) * float(n) for n in lengths) / count
        return cls(sum(map(float, lengths)) / count, square)

    @classmethod
    def fixed(cls, length: float) -> Lengths:
        """Texts that are all of one length."""
        return cls(length, length * length)

    def __add__(self, other: Lengths) -> Lengths:
        """One text behind the other, the two chosen independently."""
        return Lengths(
            self.mean + other.mean,
            self.square + 2.0 * self.mean * other.mean + other.square,
        )


@dataclass(frozen=True, slots=True)
class Work:
    """The counts of some work. `a + b` is both, one behind the other.

    Attributes:
        prompts: prompts answered.
        requested: full lengths of all prompts, in tokens.
        fresh: tokens computed.
        pairs: (query, key) pairs of attention.
        written: tokens whose keys and values are stored.
        read: tokens whose keys and values are read back from the arena.
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
        return Work(
            self.prompts * factor,
            self.requested * factor,
            self.fresh * factor,
            self.pairs * factor,
            self.written * factor,
            self.read * factor,
            self.peak * factor,
            self.passes * factor,
        )

    @property
    def axes(self) -> tuple[float, float, float, float, float]:
        """What plans are compared by, less being better."""
        return (self.fresh, self.pairs, self.written, self.read, self.peak)


def stems(
    count: float, document: Lengths, around: float, budget: float, *, kept: bool = False
) -> Work:
    """Compute stems: `count` documents with what all of them have around them.

    Token i of a stem attends to itself and the i before it, so that a stem of n tokens has
    n(n + 1)/2 pairs.

    Args:
        count: distinct documents.
        document: their lengths.
        around: tokens that are computed with each of them, such as a frame.
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
    stem: Lengths,
    budget: float,
    *,
    anchors: float | None = None,
    resident: bool = True,
) -> Work:
    """Compute suffixes behind stems that are there already: each gives one answer.

    A suffix of s tokens behind a stem of c has s·c + s(s + 1)/2 pairs. The keys and values
    of a stem are read once for each pass that holds suffixes of it.

    Args:
        count: prompts.
        suffix: lengths of what is computed for each prompt alone.
        stem: lengths of what stands before it.
        budget: fresh tokens of a pass.
        anchors: distinct stems; None where every prompt has one of its own.
        resident: whether the stems are read from the arena, and not computed in the same pass.
    """
    stems_read = count if anchors is None else min(anchors, count)
    fresh = count * suffix.mean
    passes = fresh / budget
    # A stem is read in as many passes as its suffixes fill, and in one at least.
    readings = max(stems_read, passes)
    return Work(
        prompts=count,
        requested=count * (stem.mean + suffix.mean),
        fresh=fresh,
        pairs=count * (suffix.mean * stem.mean + (suffix.square + suffix.mean) / 2.0),
        read=readings * stem.mean if resident else 0.0,
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


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time by its parts."""

    projection: float
    mlp: float
    attention: float

    @property
    def total(self) -> float:
        return self.projection + self.mlp + self.attention


def speed_of_light(work: Work, costs: ModelCosts, device: Device) -> Seconds:
    """The roofline: no run of this work on this device can be faster.

    The sum over projections, MLP and attention of the larger of compute at the datasheet's
    peak and memory traffic at its bandwidth. Weights are read once a pass, keys and values
    as `work` counts them.
    """
    products = device.peak(costs.compute.value)
    bandwidth = device.bandwidth
    kv = (work.written + work.read) * costs.kv_bytes
    return Seconds(
        max(
            work.fresh * costs.projection_flops / products,
            work.passes * costs.projection_bytes / bandwidth,
        ),
        max(work.fresh * costs.mlp_flops / products, work.passes * costs.mlp_bytes / bandwidth),
        max(work.pairs * costs.pair_flops / device.peak(costs.attention.value), kv / bandwidth),
    )


def expected_seconds(work: Work, rates: Rates) -> float:
    """The time that a run is expected to take; see `Rates`.

    Rates are fitted to whole passes, so that they hold what a roofline leaves out: glue,
    launches, the unused part of a device. Keys and values are read with the pairs.
    """
    return rates.seconds(work.passes, work.fresh, work.pairs)


def assumed_rates(costs: ModelCosts, device: Device) -> Rates:
    """Rates by the datasheet alone, for a device that nothing was measured on."""
    products = device.peak(costs.compute.value) * ASSUMED_SHARE
    attention = device.peak(costs.attention.value) * ASSUMED_SHARE
    weights = costs.projection_bytes + costs.mlp_bytes
    return Rates(
        pass_seconds=weights / (device.bandwidth * ASSUMED_SHARE),
        token_seconds=(costs.projection_flops + costs.mlp_flops) / products,
        pair_seconds=costs.pair_flops / attention,
        spread=ASSUMED_SPREAD,
    )
