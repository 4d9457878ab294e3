"""What a plan is expected to take: tokens, seconds and money, with their bounds.

A dry run goes the plan's way over a sample, with answers drawn at assumed selectivities
(`covey.execution.dry_run`). One run at the expected ones gives the expected figures; runs at
the bounds of what is known of them give the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.estimate.cost import Work, roofline_seconds
from covey.estimate.dry_result import DryResult, WorkInAllRows, beyond, certain
from covey.estimate.figures import ZERO, Bound, Range
from covey.estimate.profile import ModelProfile
from covey.estimate.scenarios import MAX_COMBINED, Selectivity
from covey.logical.calls import AICall, Reading
from covey.plan.decisions import Decision

# With a KV cache too small for what is kept, fresh tokens were up to so many times the
# minimum (docs/open-ends.md).
RECOMPUTED = 1.15


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """What a load step is expected to give.

    Attributes:
        rows: None where they depend on answers.
        sampled: rows that the estimate looked at, None for all.
    """

    rows: int | None
    sampled: int | None = None


NOT_LOADED = LoadForecast(None)


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
    selectivity: Selectivity | None
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
        known: whether every selectivity that it depends on is known.
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


def forecast(
    calls: Sequence[AICall],
    results: Sequence[DryResult],
    selectivities: Mapping[int, Selectivity],
    loads: Mapping[str, LoadForecast],
    profile: ModelProfile,
    price: float | None = None,
) -> Forecast:
    """What a plan is expected to take.

    Args:
        calls: of the plan.
        results: of dry runs with `scenarios(selectivities)`, in that order.
        selectivities: by index of a call.
        loads: what is known of the load steps.
        profile: of the model.
        price: US dollars an hour; None takes the device's.
    """
    in_all = WorkInAllRows(calls, profile)
    runs = [in_all.of(result, Bound.EXPECTED) for result in results]
    varied = sum(each.low < each.high for each in selectivities.values()) > MAX_COMBINED
    more = beyond(runs) if varied else []
    runs += [certain(in_all.of(result, Bound.LOW), result) for result in results]
    runs += [in_all.of(result, Bound.HIGH) for result in results]
    runs += more
    works, unknown = [run.total for run in runs], results[0].unknown
    prompts, requested, minimum = _counts(works, unknown)
    room = profile.capacity
    tight = room is not None and any(work.peak > room for work in works)
    fresh = replace(minimum, high=minimum.high * RECOMPUTED) if tight else minimum
    varying = prompts.low < prompts.high or fresh.low < fresh.high
    asked = {}
    for call in calls:
        own = [run.calls.get(call.index, Work()) for run in runs]
        asked[call.index] = _call(call, own, selectivities[call.index], unknown.get(call.index))
    found = Forecast(
        calls=prompts,
        requested=requested,
        fresh=fresh,
        minimum=minimum,
        exact=profile.measure.exact,
        known=not unknown and (not varying or all(selectivities[i].known for i in asked)),
        asked=asked,
        loads=loads,
        decisions=results[0].decisions,
        notes=_notes(loads, profile),
    )
    return _timed(found, works, profile, price, unknown)


def _range(works: Sequence[Work], count: Callable[[Work], float], unknown: object) -> Range:
    """The range of a count, the first work being expected; without an end where some is unknown."""
    found = Range.over([count(work) for work in works])
    return replace(found, high=math.inf) if unknown else found


def _counts(works: Sequence[Work], unknown: object) -> tuple[Range, Range, Range]:
    """Prompts, requested and fresh tokens."""
    return (
        _range(works, lambda work: work.prompts, unknown),
        _range(works, lambda work: work.requested, unknown),
        _range(works, lambda work: work.fresh, unknown),
    )


def _call(
    call: AICall, works: Sequence[Work], selectivity: Selectivity, reason: str | None
) -> CallForecast:
    prompts, requested, fresh = _counts(works, reason)
    length = next((work.requested / work.prompts for work in works if work.prompts), None)
    known = selectivity if call.reading is Reading.TRUTH else None
    return CallForecast(prompts, length, requested, fresh, known, reason)


def _timed(
    found: Forecast,
    works: Sequence[Work],
    profile: ModelProfile,
    price: float | None,
    unknown: object,
) -> Forecast:
    """The forecast with the times, as far as the device is known."""
    costs, device, rates = profile.costs, profile.device, profile.expected_rates
    if costs is None:
        return found
    room = math.inf if profile.capacity is None else profile.capacity
    peak = _range(works, lambda work: min(work.peak, room) * costs.kv_bytes, None)
    if device is None or rates is None:
        return replace(found, peak=peak)
    light = _range(works, lambda work: roofline_seconds(work, costs, device), unknown)
    times = _range(works, rates.seconds, unknown)
    recomputed = found.fresh.high / found.minimum.high if found.minimum.high else 1.0
    high = times.high * rates.spread * (1.0 if math.isnan(recomputed) else recomputed)
    low = min(max(times.low / rates.spread, light.low), times.expected)
    seconds = Range(low, times.expected, high)
    hourly = device.price if price is None else price
    return replace(
        found,
        peak=peak,
        roofline=light,
        seconds=seconds,
        money=seconds.times(hourly / 3600.0),
        price=hourly,
        device=device.name,
        measured=profile.rates is not None,
    )


def _notes(loads: Mapping[str, LoadForecast], profile: ModelProfile) -> tuple[str, ...]:
    notes = []
    if any(load.sampled is not None for load in loads.values()):
        notes.append("Lengths and join selectivities come from a sample of the rows.")
    if not profile.measure.exact:
        notes.append(
            "The model's tokenizer is not on this machine yet: tokens are guessed from bytes."
        )
    if profile.note is not None:
        notes.append(profile.note)
    return tuple(notes)
