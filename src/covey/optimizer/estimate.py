"""From what dry runs of a plan counted to tokens, seconds and money, with their bounds.

A dry run goes the plan's way over a sample, with answers drawn at assumed pass rates
(`covey.execution.dry_run`). One run at the expected rates gives the expected figures; runs
at the bounds of what is known of the rates give the bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from covey.estimate.cost import (
    Lengths,
    Work,
    prefixes,
    speed_of_light,
    suffixes,
)
from covey.estimate.figures import Bound, Range
from covey.estimate.forecast import (
    UNKNOWN,
    CallForecast,
    DryResult,
    Forecast,
    LoadForecast,
    PassRate,
    Tally,
)
from covey.estimate.profile import ModelProfile
from covey.estimate.rates import assumed_rates
from covey.logical.calls import AICall, Reading
from covey.prompts.question import Question

# Calls whose bounds are combined in every way; of more, all low and all high are run, and
# either with one call the other way; of more still, with some of them the other way: each run
# takes as long as the plan has calls.
MAX_COMBINED = 3
MAX_SINGLE = 6
MAX_SPLIT = 32
SPLITS = 3
# With an arena too small for what is kept, fresh tokens were up to so many times the
# minimum (docs/open-ends.md).
REGRET = 1.15
# A model whose costs are not known is taken to run everything in one pass.
_NO_BUDGET = math.inf


def pass_rates(calls: Sequence[AICall]) -> dict[int, PassRate]:
    """What is known of each call's pass rate before anything has run."""
    rates = {}
    for call in calls:
        given = call.options.selectivity
        rates[call.index] = UNKNOWN if given is None else PassRate.given(given)
    return rates


def with_stored(rates: Mapping[int, PassRate], result: DryResult) -> dict[int, PassRate]:
    """The pass rates with those that earlier answers tell in the place of unknown ones.

    Args:
        rates: by index of a call.
        result: of a dry run.
    """
    found = dict(rates)
    for call, tally in result.tallies.items():
        if tally.stored and not rates[call].known:
            found[call] = PassRate.stored(tally.stored_true, tally.stored)
    return found


def scenarios(
    rates: Mapping[int, PassRate], alike: Mapping[int, int] | None = None
) -> list[dict[int, float]]:
    """Pass rates to run with: first the expected ones, then what bounds them.

    Args:
        rates: by index of a call.
        alike: by index of a call, the first call that is the same; None where all differ.
    """
    found = [{call: rate.expected for call, rate in rates.items()}]
    first = {call: call if alike is None else alike[call] for call in rates}
    open_calls = sorted({first[c] for c, rate in rates.items() if rate.low < rate.high})
    if not open_calls:
        return found
    for choice in _choices(len(open_calls)):
        high = {call for call, chosen in zip(open_calls, choice, strict=True) if chosen}
        bounds = {
            call: rate.high if first[call] in high else rate.low for call, rate in rates.items()
        }
        found.append(bounds)
    return found


def _choices(count: int) -> list[tuple[bool, ...]]:
    """Which of some calls pass as often as may be in each run, the others as seldom."""
    if count <= MAX_COMBINED:
        return list(itertools.product((False, True), repeat=count))
    choices = [(high,) * count for high in (False, True)]
    if count <= MAX_SINGLE:
        sets = [[i == one for i in range(count)] for one in range(count)]
    else:
        bits = range(SPLITS if count <= MAX_SPLIT else 1)
        sets = [[bool(i >> bit & 1) for i in range(count)] for bit in bits]
    for high, chosen in itertools.product((False, True), sets):
        choices.append(tuple(high != each for each in chosen))
    return choices


@dataclass(frozen=True, slots=True)
class _Run:
    """The work of one dry run: in all, and of each call."""

    total: Work
    calls: dict[int, Work]


def estimate(
    calls: Sequence[AICall],
    results: Sequence[DryResult],
    rates: Mapping[int, PassRate],
    loads: Mapping[str, LoadForecast],
    profile: ModelProfile,
    price: float | None = None,
    notes: tuple[str, ...] = (),
) -> Forecast:
    """What a plan is expected to take.

    Args:
        calls: of the plan.
        results: of dry runs with `scenarios(rates)`, in that order.
        rates: pass rates by call.
        loads: what is known of the load steps.
        profile: of the model.
        price: US dollars an hour; None takes the device's.
        notes: more to tell of the figures.
    """
    runs = [_run(result, calls, profile, Bound.EXPECTED) for result in results]
    fewest = [_run(result, calls, profile, Bound.LOW) for result in results]
    runs += [_least(run, result) for run, result in zip(fewest, results, strict=True)]
    runs += [_run(result, calls, profile, Bound.HIGH) for result in results]
    if sum(rate.low < rate.high for rate in rates.values()) > MAX_COMBINED:
        runs += _beyond(runs[: len(results)])
    works = [run.total for run in runs]
    unknown = results[0].unknown
    asked = {
        call.index: _call(call, runs, rates[call.index], unknown.get(call.index)) for call in calls
    }
    top = math.inf if unknown else 0.0
    total = _range([work.prompts for work in works], top)
    minimum = _range([work.fresh for work in works], top)
    room = profile.capacity
    tight = room is not None and any(work.peak > room for work in works)
    fresh = replace(minimum, high=minimum.high * REGRET) if tight else minimum
    varying = total.low < total.high or fresh.low < fresh.high
    forecast = Forecast(
        calls=total,
        requested=_range([work.requested for work in works], top),
        fresh=fresh,
        minimum=minimum,
        exact=profile.measure.exact,
        known=not unknown and (not varying or all(rates[c.index].known for c in calls)),
        asked=asked,
        loads=loads,
        decisions=results[0].decisions,
        notes=(*_notes(loads, profile), *notes),
    )
    return _timed(forecast, works, profile, price, top)


def _run(result: DryResult, calls: Sequence[AICall], profile: ModelProfile, bound: Bound) -> _Run:
    """The work of a dry run.

    Args:
        bound: whether the least, the likely or all steps of a classification count.
    """
    works = {}
    preamble = 0
    for call in calls:
        tally = result.tallies.get(call.index)
        if tally is not None:
            lengths = profile.measure.question(call.question)
            preamble = max(preamble, lengths.preamble if call.question.arity else 0)
            works[call.index] = _work(call.question, tally, profile, bound)
    scale = max((t.prefix_scale for t in result.tallies.values()), default=1.0)
    priors = _priors(result, calls, profile, bound)
    total = sum([*works.values(), priors], Work(fresh=float(preamble)))
    return _Run(replace(total, peak=preamble + result.peak * scale), works)


def _priors(
    result: DryResult, calls: Sequence[AICall], profile: ModelProfile, bound: Bound
) -> Work:
    """The work of documents without content; they are asked once, and are nobody's prompts.

    At most each question computes them anew, where they are not kept for the next.
    """
    work = Work()
    asked, instructed = set[Question](), set[object]()
    for call in calls:
        plain = call.question.content_free
        tally = result.tallies.get(call.index)
        if plain is None or plain in asked or tally is None or not tally.prompts:
            continue
        asked.add(plain)
        documents = np.array(profile.measure.question(call.question).prior, dtype=np.float64)
        own = Tally(prompts=float(len(documents)), anchors=float(len(documents)))
        # Judgements of one document share their instruction, a join has its own.
        instruction = plain.kind if plain.arity == 1 else plain
        if instruction not in instructed or bound is Bound.HIGH:
            own.prefixes |= Lengths.of(documents)
        instructed.add(instruction)
        own.before |= Lengths.of(documents)
        own.partners |= Lengths.of(documents * max(plain.arity - 1, 0))
        if len(documents):
            work += _work(plain, own, profile, bound)
    return replace(work, prompts=0.0)


def _least(run: _Run, result: DryResult) -> _Run:
    """What is certain of a run where answers decide which prompts calls share, or LIMIT ends it.

    k calls that may ask the same prompts ask each at most k times together. Under a LIMIT that
    a sample was looked at for, one prompt is certain.
    """
    limited = [index for index, tally in result.tallies.items() if tally.limited]
    works = {}
    for index, work in run.calls.items():
        tally = result.tallies[index]
        if not work.prompts:
            certain = 0.0
        elif tally.limited:
            certain = 1.0 if limited == [index] and not tally.stored else 0.0
        else:
            certain = float(math.ceil(work.prompts / tally.copies))
        certain = min(certain, work.prompts)
        part = work.times(certain / work.prompts if work.prompts else 1.0)
        works[index] = replace(part, prompts=certain)
    whole = sum(work.prompts for work in run.calls.values())
    left = sum(work.prompts for work in works.values())
    total = run.total.times(left / whole if whole else 1.0)
    return _Run(replace(total, prompts=left), works)


def _beyond(runs: Sequence[_Run]) -> list[_Run]:
    """Bounds of what answers may bring about that were not combined in every way.

    The call that is asked first is asked in full, whichever it is; no call is asked more than
    where it is asked most.
    """
    calls = sorted({index for run in runs for index in run.calls})
    most = [max((run.calls.get(i, Work()) for run in runs), key=lambda w: w.prompts) for i in calls]
    least = min((work.prompts for work in most), default=0.0)
    low = min(runs, key=lambda run: run.total.prompts)
    share = min(least / low.total.prompts, 1.0) if low.total.prompts else 1.0
    none = {index: work.times(0.0) for index, work in low.calls.items()}
    high = sum(most, Work(fresh=max(run.total.fresh for run in runs)))
    return [
        _Run(low.total.times(share), none),
        _Run(high, dict(zip(calls, most, strict=True))),
    ]


def _work(question: Question, tally: Tally, profile: ModelProfile, bound: Bound) -> Work:
    """The work of one call's question, in all rows; `bound` as in `_run`."""
    budget = _NO_BUDGET if profile.costs is None else float(profile.costs.budget)
    fixed = profile.measure.question(question)
    instruction = Lengths.fixed(fixed.instruction)
    before = tally.before if question.arity else Lengths()
    new = prefixes(tally.prefixes.count, tally.prefixes, fixed.instruction, budget, kept=tally.kept)
    new = new.times((1.0 - tally.shared) * tally.prefix_scale)
    instructed = suffixes(tally.new_instructions * tally.prefix_scale, instruction, before, budget)
    whole = Lengths.fixed(fixed.preamble + fixed.instruction) + before
    tails = suffixes(
        tally.prompts * tally.scale,
        tally.partners + Lengths.fixed(fixed.suffix),
        whole,
        budget,
        anchors=tally.anchors * tally.prefix_scale,
        resident=not tally.prefixes.count,
    )
    requested = fixed.prompts * (whole + tally.partners).mean + fixed.asked
    tails = replace(tails, requested=tails.prompts * requested)
    work = new + replace(instructed, prompts=0.0, requested=0.0) + tails
    passes = 1.0
    steps = 0.0 if fixed.later is None else fixed.later.count.at(bound)
    if fixed.later is not None and steps:
        own = Lengths.fixed(fixed.later.tokens.at(bound) / steps)
        count = tally.prompts * tally.scale * steps
        more = suffixes(count, tally.partners + own, whole, budget)
        work += replace(more, prompts=0.0, requested=0.0)
        passes += math.ceil(steps)
    # A call waits for the one before it, so that its last pass is never shared.
    return replace(work, passes=max(work.passes, passes)) if tails.prompts else work


def _range(values: Sequence[float], top: float) -> Range:
    found = Range.over(values)
    return Range(found.low, found.expected, max(found.high, top))


def _call(call: AICall, runs: Sequence[_Run], rate: PassRate, reason: str | None) -> CallForecast:
    works = [run.calls.get(call.index, Work()) for run in runs]
    top = 0.0 if reason is None else math.inf
    lengths = [work.requested / work.prompts for work in works if work.prompts]
    return CallForecast(
        prompts=_range([work.prompts for work in works], top),
        length=lengths[0] if lengths else None,
        requested=_range([work.requested for work in works], top),
        fresh=_range([work.fresh for work in works], top),
        selectivity=rate if call.reading is Reading.TRUTH else None,
        reason=reason,
    )


def _timed(
    forecast: Forecast,
    works: Sequence[Work],
    profile: ModelProfile,
    price: float | None,
    top: float,
) -> Forecast:
    """The forecast with the times, as far as the device is known."""
    costs, device = profile.costs, profile.device
    if costs is None:
        return forecast
    peaks = [work.peak * costs.kv_bytes for work in works]
    if profile.capacity is not None:
        peaks = [min(peak, profile.capacity * costs.kv_bytes) for peak in peaks]
    forecast = replace(forecast, peak=_range(peaks, 0.0))
    if device is None:
        return forecast
    light = _range([speed_of_light(work, costs, device).total for work in works], top)
    rates = profile.rates or assumed_rates(costs, device)
    times = _range([rates.seconds(work) for work in works], top)
    regret = forecast.fresh.high / forecast.minimum.high if forecast.minimum.high else 1.0
    high = times.high * rates.spread * (1.0 if math.isnan(regret) else regret)
    low = min(max(times.low / rates.spread, light.low), times.expected)
    seconds = Range(low, times.expected, high)
    hourly = device.price if price is None else price
    share = hourly / 3600.0
    return replace(
        forecast,
        roofline=light,
        seconds=seconds,
        money=seconds.times(share),
        price=hourly,
        device=device.name,
        measured=profile.rates is not None,
    )


def _notes(loads: Mapping[str, LoadForecast], profile: ModelProfile) -> list[str]:
    notes = []
    if any(load.sampled is not None for load in loads.values()):
        notes.append("Lengths and join selectivities come from a sample of the rows.")
    if not profile.measure.exact:
        notes.append(
            "The model's tokenizer is not on this machine yet: tokens are guessed from bytes."
        )
    return notes
