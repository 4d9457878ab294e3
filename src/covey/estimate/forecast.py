"""What a plan is expected to do, as data: pass rates, counts and their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from covey.estimate.cost import NO_TEXTS, Lengths
from covey.estimate.figures import ZERO, Range
from covey.plan.choice import Decision


@dataclass(frozen=True, slots=True)
class PassRate:
    """The share of a condition's rows that are TRUE, and where it is known from.

    Attributes:
        low, expected, high: in [0, 1].
        source: "given" (by the query), "stored" (earlier answers), or "unknown".
    """

    low: float
    expected: float
    high: float
    source: str

    @classmethod
    def given(cls, share: float) -> PassRate:
        """The user's word."""
        return cls(share, share, share, "given")

    @classmethod
    def stored(cls, true: int, answered: int) -> PassRate:
        """From earlier answers: the share of TRUE with its 95% interval (Wilson's)."""
        if not answered:
            return UNKNOWN
        share, z = true / answered, 1.96
        middle = (share + z * z / (2 * answered)) / (1 + z * z / answered)
        half = math.sqrt(share * (1 - share) / answered + z * z / (4 * answered * answered))
        half *= z / (1 + z * z / answered)
        return cls(max(middle - half, 0.0), share, min(middle + half, 1.0), "stored")

    @property
    def known(self) -> bool:
        return self.source != "unknown"


# Nothing is known; the middle stands for no knowledge, and nothing prints it.
UNKNOWN = PassRate(0.0, 0.5, 1.0, "unknown")


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """What a load step is expected to give.

    Attributes:
        rows: None where they depend on answers.
        sampled: rows that the estimate looked at, None for all.
    """

    rows: int | None
    sampled: int | None = None


@dataclass(frozen=True, slots=True)
class CallForecast:
    """What a call is expected to ask.

    Attributes:
        prompts: distinct prompts without an answer.
        length: mean tokens of one prompt; None where there is none.
        requested: tokens of all prompts in full.
        fresh: tokens that must be computed for them.
        selectivity: the share of TRUE; None for a call that is no condition.
        reason: why nothing is known of it, None where something is.
    """

    prompts: Range
    length: float | None
    requested: Range
    fresh: Range
    selectivity: PassRate | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a statement is expected to take.

    Attributes:
        calls: model calls: distinct prompts.
        requested: tokens of all prompts in full.
        fresh: tokens that will be computed.
        minimum: tokens that must be computed: every shared beginning once.
        roofline: seconds at the device's datasheet peaks; None where its facts are not known.
        seconds: expected time of the model's work, loading it apart.
        money: US dollars for that time.
        peak: bytes of keys and values held at once.
        price: US dollars an hour.
        device: where it will run.
        measured: whether `seconds` rests on rates measured on this device.
        exact: whether lengths are counted by the model's tokenizer.
        known: whether every pass rate that it depends on is known.
        asked: by index of the call.
        loads: by table of the load step.
        decisions: about the order of conditions, as they are expected.
        notes: what a reader must know of the figures.
    """

    calls: Range = ZERO
    requested: Range = ZERO
    fresh: Range = ZERO
    minimum: Range = ZERO
    roofline: Range | None = None
    seconds: Range | None = None
    money: Range | None = None
    peak: Range | None = None
    price: float | None = None
    device: str | None = None
    measured: bool = False
    exact: bool = True
    known: bool = True
    asked: Mapping[int, CallForecast] = field(default_factory=dict)
    loads: Mapping[str, LoadForecast] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallActual:
    """What a call did.

    Attributes:
        prompts, failed: prompts asked, and those without an answer.
        stored: answers that earlier runs had.
        true: answers TRUE, asked or stored; None for a call that is no condition.
    """

    prompts: int
    stored: int
    true: int | None
    failed: int


@dataclass(frozen=True, slots=True)
class Actual:
    """What a run did, beside its `Forecast`.

    Attributes:
        calls, requested, fresh, minimum: as in `Forecast`.
        seconds: the run, loading the model apart.
        money: US dollars; None without a price.
        peak: bytes of keys and values; None where a token's are not known.
        asked: by index of the call.
    """

    calls: int
    requested: int
    fresh: int
    minimum: int
    seconds: float
    money: float | None
    peak: float | None
    asked: Mapping[int, CallActual] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What one call asked in a dry run over a sample.

    Attributes:
        scale: what its prompts count for in all rows.
        prefix_scale: the same for its anchors.
        prompts: distinct prompts.
        stored, stored_true: answers of earlier runs, and those of them that are TRUE.
        prefixes: lengths of the anchors that nothing computed before.
        shared: share of their tokens that begin like another anchor.
        new_instructions: anchors that are there, but not with this call's instruction behind them.
        anchors: anchors of all its batches.
        before: by prompt, length of its anchor.
        partners: by prompt, length of its other documents.
        kept: whether its anchors stay for later work.
        limited: whether LIMIT ends it, and a sample cannot tell how early.
        copies: calls that may ask the same prompts, depending on answers; this one counts.
    """

    scale: float = 1.0
    prefix_scale: float = 1.0
    prompts: float = 0.0
    stored: int = 0
    stored_true: int = 0
    prefixes: Lengths = NO_TEXTS
    shared: float = 0.0
    new_instructions: float = 0.0
    anchors: float = 0.0
    before: Lengths = NO_TEXTS
    partners: Lengths = NO_TEXTS
    kept: bool = False
    limited: bool = False
    copies: int = 1


@dataclass(slots=True)
class DryResult:
    """What one dry run of a plan asked.

    Attributes:
        tallies: by index of a call.
        peak: most tokens held at once.
        unknown: calls of which nothing is known, with the reason.
        decisions: about orders.
    """

    tallies: dict[int, Tally]
    peak: float
    unknown: dict[int, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
