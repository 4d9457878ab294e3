"""A plan with what it is expected to take and what it took, as text and as plain values.

The text needs no prior knowledge to read: a paragraph for each step, then the figures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from covey.estimate.figures import Range, megabytes, money, seconds, share, size
from covey.estimate.forecast import NOT_LOADED, CallForecast, Forecast
from covey.execution.report import OperatorReport, Report
from covey.plan.decisions import Decision
from covey.plan.nodes import Ask, Load, Match, PhysicalPlan, Pipeline, Prune, Step
from covey.sql.text import one_line

_SOURCES = {"given": "as the query says", "stored": "by earlier answers"}
# What of a call's report stands beside its forecast, and what of a forecast among the steps.
_HAPPENED = ("prompts", "stored", "true", "failed")
_AMONG_STEPS = ("asked", "loads", "decisions")
# Width of the names in the list of figures.
_WIDTH = 18


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan and its forecast.

    Attributes:
        plan: what would run; without AI calls where DuckDB runs all of it.
        forecast: of it.
        kv_bytes: of one token's keys and values; None where they are not known.
        note: stands for the plan where there is none.
    """

    plan: PhysicalPlan = field(default_factory=lambda: PhysicalPlan("", [], [], ""))
    forecast: Forecast = field(default_factory=Forecast)
    kv_bytes: float | None = None
    note: str | None = None

    def text(self, report: Report | None = None) -> str:
        """As text; with the report of a run, beside what happened."""
        if self.note is not None:
            return self.note if report is None else f"{self.note}\n{report}"
        numbers = itertools.count(1)
        lines = [line for step in self.plan.steps for line in self._step(step, numbers, report)]
        for index in self._on_demand:
            lines.append(f"on demand: {self._written(index)}")
            lines.append(f"    because {self.plan.on_demand[index]}")
            lines += self._asked(index, report)
        calls = self.plan.calls
        lines += sorted({f"{call.name}: {call.note}" for call in calls if call.note is not None})
        if not calls:
            return "\n".join([*lines, "DuckDB runs all of it"])
        figures = _figures(self.forecast, None if report is None else self._actual(report))
        return "\n".join([*lines, "then DuckDB runs the rest", "", *figures, *self.forecast.notes])

    def values(self, report: Report | None = None) -> dict[str, Any]:
        """What `text` shows, as plain values; None stands for what is not bounded."""
        if self.note is not None:
            happened = {} if report is None else {"report": report.to_dict()}
            return {"note": self.note} | happened
        on_demand = [
            {"call": self._written(index), "because": self.plan.on_demand[index]}
            | self._asked_values(index, report)
            for index in self._on_demand
        ]
        expected = {k: v for k, v in asdict(self.forecast).items() if k not in _AMONG_STEPS}
        steps = [self._step_values(step, report) for step in self.plan.steps]
        found: dict[str, Any] = {"steps": steps, "on_demand": on_demand, "expected": expected}
        if report is not None:
            found["happened"] = self._actual(report)
        values: dict[str, Any] = _finite(found)
        return values

    @property
    def _on_demand(self) -> list[int]:
        return [call.index for call in self.plan.calls if call.index in self.plan.on_demand]

    def _written(self, index: int) -> str:
        return one_line(self.plan.sql[slice(*self.plan.calls[index].span)])

    def _actual(self, report: Report) -> dict[str, float | None]:
        """What a run came to, by the names that a `Forecast` has for its figures."""
        counters, price = report.counters, self.forecast.price
        return {
            "calls": counters.prompts,
            "requested": counters.requested_tokens,
            "fresh": counters.fresh_tokens,
            "minimum": counters.minimum_tokens,
            "seconds": report.seconds,
            "money": None if price is None else report.seconds * price / 3600.0,
            "peak": None if self.kv_bytes is None else counters.peak_slots * self.kv_bytes,
        }

    def _in_order(self, pipeline: Pipeline) -> tuple[Decision | None, list[Ask]]:
        """The asks of a pipeline in the order that it is expected to begin with, and why."""
        operators = pipeline.operators
        written = [" with ".join(one_line(ask.condition) for ask in o.asks) for o in operators]
        for decision in self.forecast.decisions:
            places = {text: place for place, text in enumerate(decision.order)}
            if decision.kind == "order" and len(places) > 1 and places.keys() <= set(written):
                order = sorted(
                    range(len(written)), key=lambda i: places.get(written[i], len(places))
                )
                return decision, [ask for i in order for ask in operators[i].asks]
        return None, list(pipeline.asks)

    def _step(self, step: Step, numbers: Iterator[int], report: Report | None) -> Iterator[str]:
        """The lines of a step; a pipeline is one step for each ask."""
        if isinstance(step, Load):
            yield f"{next(numbers)}. load {step.alias}: {self._rows(step)}"
            yield from (f"    where {one_line(condition)}" for condition in step.pushed)
        elif isinstance(step, Ask):
            yield f"{next(numbers)}. ask {one_line(step.condition)}"
            yield from self._asked(step.call, report)
        elif isinstance(step, Pipeline):
            decision, asks = self._in_order(step)
            for ask in asks:
                yield from self._step(ask, numbers, report)
            if decision is not None:
                yield f"    in this order: {decision.reason}"
            if step.needed is not None:
                yield f"    in batches, until {_count(step.needed, 'row')} are found"
        elif isinstance(step, Prune):
            yield f"{next(numbers)}. keep only the rows that LIMIT lets through"
        elif isinstance(step, Match):
            yield f"{next(numbers)}. gather the pairs that passed {one_line(step.condition)}"

    def _step_values(self, step: Step, report: Report | None) -> dict[str, Any]:
        if isinstance(step, Load):
            where = [one_line(condition) for condition in step.pushed]
            known = asdict(self.forecast.loads.get(step.table, NOT_LOADED))
            return {"step": "load", "source": step.alias, "where": where} | known
        if isinstance(step, Ask):
            call = {"step": "ask", "call": one_line(step.condition)}
            return call | self._asked_values(step.call, report)
        if isinstance(step, Pipeline):
            decision, order = self._in_order(step)
            asks = [self._step_values(ask, report) for ask in order]
            why = None if decision is None else decision.reason
            return {"step": "batches", "rows_needed": step.needed, "order": why, "asks": asks}
        if isinstance(step, Prune):
            return {"step": "limit"}
        return {"step": "pairs", "call": one_line(step.condition)}

    def _rows(self, load: Load) -> str:
        known = self.forecast.loads.get(load.table)
        if known is None:
            return "rows not counted"
        rows = "rows depend on earlier answers" if known.rows is None else _count(known.rows, "row")
        if known.sampled is not None:
            rows += f", of which the estimate looked at {known.sampled:,}"
        return rows

    def _asked(self, index: int, report: Report | None) -> Iterator[str]:
        """What a call is expected to ask, and asked."""
        known, done = self.forecast.asked.get(index), _done(index, report)
        if known is not None:
            yield from _expected(known)
        if done is None:
            return
        text = f"    was: {_count(done.prompts, 'prompt')}"
        if done.stored:
            text += f", {done.stored:,} answered by earlier runs"
        if done.true is not None and done.answers:
            text += f", {done.true:,} TRUE ({done.true / done.answers:.0%})"
        yield text + (f", {done.failed:,} failed" if done.failed else "")

    def _asked_values(self, index: int, report: Report | None) -> dict[str, Any]:
        known, done = self.forecast.asked.get(index), _done(index, report)
        values = {} if known is None else {"expected": asdict(known)}
        if done is not None:
            values["happened"] = {name: getattr(done, name) for name in _HAPPENED}
        return values


# Stands for a statement that cannot be planned before those in front of it have run.
LATER = Explained(note="planned when the statements before it have run")
# Stands for one that has run and cannot be planned any more.
DONE = Explained(note="it has run, and cannot run again")


def _done(index: int, report: Report | None) -> OperatorReport | None:
    """What a call did; DESCRIBE has calls in its plan and runs none of them."""
    operators = [] if report is None else report.operators
    return operators[index] if index < len(operators) else None


def _expected(known: CallForecast) -> Iterator[str]:
    if known.reason is not None:
        yield f"    prompts not known before it runs: {known.reason}"
        return
    selectivity = known.selectivity
    prompts = known.prompts.shown(size, known=selectivity is not None and selectivity.known)
    text = f"    {prompts} {'prompt' if prompts == '1' else 'prompts'}"
    yield text + ("" if known.length is None else f" of {known.length:,.0f} tokens")
    if selectivity is not None:
        shown = "not known before it runs: 0% to 100%"
        if selectivity.known:
            shown = f"{selectivity.shown(share, known=True)}, {_SOURCES[selectivity.source]}"
        yield f"    selectivity {shown}"


def _figures(forecast: Forecast, actual: Mapping[str, float | None] | None) -> Iterator[str]:
    """Calls, tokens, time and money, one line each: expected, what it was, what it means."""
    source = "rates measured here" if forecast.measured else "its datasheet, not measured yet"
    timed = f"on {forecast.device} by {source}; loading not counted"
    priced = "" if forecast.price is None else f"at ${forecast.price:.2f} an hour"
    figures: list[tuple[str, str, Callable[[float], str], str]] = [
        ("model calls", "calls", size, ""),
        ("prompt tokens", "requested", size, "each prompt in full"),
        ("computed tokens", "fresh", size, "shared prefixes once"),
        ("minimum tokens", "minimum", size, ""),
        ("time", "seconds", seconds, timed),
        ("roofline", "roofline", seconds, "the least its datasheet allows"),
        ("memory", "peak", megabytes, "at most, for documents read again"),
        ("money", "money", money, priced),
    ]
    yield "expected before anything runs:" if actual is None else "expected, and what it was:"
    for name, key, show, remark in figures:
        found: Range | None = getattr(forecast, key)
        if found is None or (key == "minimum" and actual is None and found == forecast.fresh):
            continue
        if key == "peak":
            found = Range.exactly(found.high)
        was = None if actual is None else actual.get(key)
        text = f"    {name:<{_WIDTH}}{found.shown(show, known=forecast.known)}"
        text += "" if was is None else f"; was {show(was)}"
        yield text + (remark and f"  ({remark})")


def _finite(value: Any) -> Any:
    """The value with infinities as None, which JSON lacks, and no digits that say nothing."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
