"""What a dry run over a sample asked, and the work that it stands for in all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from covey.estimate.cost import NO_TEXTS, Lengths, Work, prefixes, suffixes
from covey.estimate.figures import Bound
from covey.estimate.profile import ModelProfile
from covey.logical.calls import AICall
from covey.plan.decisions import Decision
from covey.prompts.question import Question


@dataclass(slots=True)
class SampledCall:
    """What one call asked in a dry run over a sample.

    Attributes:
        scale: what its prompts count for in all rows.
        prefix_scale: the same for its anchors.
        prompts: distinct prompts.
        stored, stored_true: answers of earlier runs, and those of them that are TRUE.
        prefixes: the anchors that nothing computed before.
        shared: share of their tokens that begin like another anchor.
        new_instructions: anchors that are there, but not with this call's instruction behind them.
        anchors: anchors of all its batches.
        before: by prompt, its anchor.
        partners: by prompt, its other documents, one behind the other.
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


@dataclass(frozen=True, slots=True)
class DryResult:
    """What one dry run of a plan asked.

    Attributes:
        asked: by index of a call.
        peak: most tokens held at once.
        unknown: calls of which nothing is known, with the reason.
        decisions: about orders.
    """

    asked: Mapping[int, SampledCall] = field(default_factory=dict)
    peak: float = 0.0
    unknown: Mapping[int, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class RunWork:
    """The work of one run: in all, and by index of a call."""

    total: Work
    calls: Mapping[int, Work]


class WorkInAllRows:
    """Works out what runs over a sample stand for.

    Args:
        calls: of the plan.
        profile: of the model.
    """

    def __init__(self, calls: Sequence[AICall], profile: ModelProfile) -> None:
        self._calls = calls
        self._budget = profile.budget
        self._lengths = cache(profile.measure.question)

    def of(self, result: DryResult, bound: Bound) -> RunWork:
        """The work of a run.

        Args:
            bound: whether the fewest, the likely or all steps of a classification count.
        """
        calls, preamble = {}, 0
        for call in self._calls:
            asked = result.asked.get(call.index)
            if asked is not None:
                if call.question.arity:
                    preamble = max(preamble, self._lengths(call.question).preamble)
                calls[call.index] = self._call(call.question, asked, bound)
        priors = self._priors(result, bound)
        total = sum([*calls.values(), priors], Work(fresh=float(preamble)))
        scale = max((asked.prefix_scale for asked in result.asked.values()), default=1.0)
        return RunWork(replace(total, peak=preamble + result.peak * scale), calls)

    def _priors(self, result: DryResult, bound: Bound) -> Work:
        """The work of content-free documents; they are asked once, and are nobody's prompts.

        At most each question computes them anew, where they are not kept for the next.
        """
        work = Work()
        asked, instructed = set[Question](), set[object]()
        for call in self._calls:
            plain, sampled = call.question.content_free, result.asked.get(call.index)
            if plain is None or plain in asked or sampled is None or not sampled.prompts:
                continue
            asked.add(plain)
            lengths = np.array(self._lengths(call.question).prior, np.float64)
            documents = Lengths.of(lengths)
            # Judgements of one document share their instruction, a join has its own.
            instruction = plain.kind if plain.arity == 1 else plain
            own = SampledCall(
                prompts=documents.count,
                prefixes=NO_TEXTS
                if instruction in instructed and bound is not Bound.HIGH
                else documents,
                anchors=documents.count,
                before=documents,
                partners=Lengths.of(lengths * max(plain.arity - 1, 0)),
            )
            instructed.add(instruction)
            if len(lengths):
                work += self._call(plain, own, bound)
        return replace(work, prompts=0.0)

    def _call(self, question: Question, asked: SampledCall, bound: Bound) -> Work:
        """The work of one call's question."""
        budget, fixed = self._budget, self._lengths(question)
        before = asked.before if question.arity else NO_TEXTS
        new = prefixes(
            asked.prefixes.count, asked.prefixes, fixed.instruction, budget, kept=asked.kept
        )
        new = new.times((1.0 - asked.shared) * asked.prefix_scale)
        instructed = suffixes(
            asked.new_instructions * asked.prefix_scale,
            Lengths.fixed(fixed.instruction),
            before,
            budget,
        )
        whole = Lengths.fixed(fixed.preamble + fixed.instruction) + before
        tails = suffixes(
            asked.prompts * asked.scale,
            asked.partners + Lengths.fixed(fixed.suffix),
            whole,
            budget,
            anchors=asked.anchors * asked.prefix_scale,
            resident=not asked.prefixes.count,
        )
        requested = fixed.prompts * (whole + asked.partners).mean + fixed.asked
        tails = replace(tails, requested=tails.prompts * requested)
        work = new + replace(instructed, prompts=0.0, requested=0.0) + tails
        passes = 1.0
        steps = fixed.steps.at(bound)
        if steps:
            own = Lengths.fixed(fixed.step_tokens.at(bound) / steps)
            count = asked.prompts * asked.scale * steps
            more = suffixes(count, asked.partners + own, whole, budget)
            work += replace(more, prompts=0.0, requested=0.0)
            passes += math.ceil(steps)
        # A call waits for the one before it, so that its last pass is never shared.
        return replace(work, passes=max(work.passes, passes)) if tails.prompts else work


def certain(run: RunWork, result: DryResult) -> RunWork:
    """What is certain of a run where answers decide which prompts calls share, or LIMIT ends it.

    k calls that may ask the same prompts ask each at most k times together. Under a LIMIT that
    a sample was looked at for, one prompt is certain.
    """
    limited = [index for index, asked in result.asked.items() if asked.limited]
    calls = {}
    for index, work in run.calls.items():
        asked = result.asked[index]
        if asked.limited:
            prompts = 1.0 if limited == [index] and not asked.stored else 0.0
        else:
            prompts = float(math.ceil(work.prompts / asked.copies))
        prompts = min(prompts, work.prompts)
        part = work.times(prompts / work.prompts if work.prompts else 1.0)
        calls[index] = replace(part, prompts=prompts)
    whole = sum(work.prompts for work in run.calls.values())
    left = sum(work.prompts for work in calls.values())
    total = run.total.times(left / whole if whole else 1.0)
    return RunWork(replace(total, prompts=left), calls)


def beyond(runs: Sequence[RunWork]) -> list[RunWork]:
    """Bounds of what answers may bring about that were not combined in every way.

    The call that is asked first is asked in full, whichever it is; no call is asked more than
    where it is asked most.
    """
    indices = sorted({index for run in runs for index in run.calls})
    most = {
        index: max((run.calls.get(index, Work()) for run in runs), key=lambda work: work.prompts)
        for index in indices
    }
    least = min((work.prompts for work in most.values()), default=0.0)
    low = min(runs, key=lambda run: run.total.prompts)
    share = min(least / low.total.prompts, 1.0) if low.total.prompts else 1.0
    none = {index: work.times(0.0) for index, work in low.calls.items()}
    high = sum(most.values(), Work(fresh=max(run.total.fresh for run in runs)))
    return [RunWork(low.total.times(share), none), RunWork(high, most)]
