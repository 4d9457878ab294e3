"""A physical plan as text that needs no prior knowledge to read, and as plain values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from covey.estimate.figures import Range, megabytes, money, seconds, share, size
from covey.estimate.forecast import Actual, CallForecast, Forecast, LoadForecast, PassRate
from covey.plan.choice import Decision
from covey.plan.nodes import Ask, Load, Match, PhysicalPlan, Pipeline, Prune
from covey.sql.text import one_line

_SOURCES = {
    "given": "as the query says",
    "stored": "by earlier answers",
}
_NOT_LOADED = LoadForecast(None)
# Width of the names in the list of figures.
_WIDTH = 18


def explain(plan: PhysicalPlan, forecast: Forecast, actual: Actual | None = None) -> str:
    """The steps of a plan, one paragraph each, and what they are expected to take.

    Args:
        plan: what will run, or has run.
        forecast: of it.
        actual: what happened, to be printed beside it.
    """
    lines: list[str] = []
    numbers = itertools.count(1)
    for step in plan.steps:
        if isinstance(step, Load):
            lines += _load(next(numbers), step, forecast)
        elif isinstance(step, Ask):
            lines += _ask(next(numbers), step, forecast, actual)
        elif isinstance(step, Pipeline):
            decision, asks = _in_order(step, forecast)
            for ask in asks:
                lines += _ask(next(numbers), ask, forecast, actual)
            if decision is not None:
                lines.append(f"    in this order: {decision.reason}")
            if step.needed is not None:
                lines.append(f"    in batches, until {_count(step.needed, 'row')} are found")
        elif isinstance(step, Prune):
            lines.append(f"{next(numbers)}. keep only the rows that LIMIT lets through")
        elif isinstance(step, Match):
            lines.append(
                f"{next(numbers)}. gather the pairs that passed {one_line(step.condition)}"
            )
    for index in _on_demand(plan):
        lines.append(f"on demand: {one_line(plan.sql[slice(*plan.calls[index].span)])}")
        lines.append(f"    because {plan.on_demand[index]}")
        lines += _asked(index, forecast, actual)
    notes = {f"{call.name}: {call.note}" for call in plan.calls if call.note is not None}
    lines += sorted(notes)
    if not plan.calls:
        return "\n".join([*lines, "DuckDB runs all of it"])
    lines += ["then DuckDB runs the rest", "", *_figures(forecast, actual)]
    return "\n".join(lines)


def _in_order(pipeline: Pipeline, forecast: Forecast) -> tuple[Decision | None, list[Ask]]:
    """The asks of a pipeline in the order that it is expected to begin with, and why."""
    places: dict[str, int] = {}
    found = None
    written = [" with ".join(one_line(ask.condition) for ask in s.asks) for s in pipeline.operators]
    for decision in forecast.decisions:
        mine = decision.kind == "order" and set(decision.order) <= set(written)
        if mine and len(decision.order) > 1:
            found = decision
            places = {text: place for place, text in enumerate(decision.order)}
            break
    order = sorted(range(len(written)), key=lambda i: places.get(written[i], len(places)))
    return found, [ask for i in order for ask in pipeline.operators[i].asks]


def _on_demand(plan: PhysicalPlan) -> Iterator[int]:
    return (call.index for call in plan.calls if call.index in plan.on_demand)


def _load(number: int, load: Load, forecast: Forecast) -> list[str]:
    known = forecast.loads.get(load.table)
    if known is None:
        known, rows = _NOT_LOADED, "rows not counted"
    else:
        rows = "rows depend on earlier answers" if known.rows is None else ""
    if known.rows is not None:
        rows = _count(known.rows, "row")
    if known.sampled is not None:
        rows += f", of which the estimate looked at {known.sampled:,}"
    lines = [f"{number}. load {load.alias}: {rows}"]
    return lines + [f"    where {one_line(condition)}" for condition in load.pushed]


def _ask(number: int, ask: Ask, forecast: Forecast, actual: Actual | None) -> list[str]:
    return [f"{number}. ask {one_line(ask.condition)}", *_asked(ask.call, forecast, actual)]


def _asked(index: int, forecast: Forecast, actual: Actual | None) -> list[str]:
    known = forecast.asked.get(index)
    lines = [] if known is None else _expected(known)
    done = None if actual is None else actual.asked.get(index)
    if done is not None:
        text = f"    was: {_count(done.prompts, 'prompt')}"
        if done.stored:
            text += f", {done.stored:,} answered by earlier runs"
        answers = done.prompts + done.stored
        if done.true is not None and answers:
            text += f", {done.true:,} TRUE ({done.true / answers:.0%})"
        lines.append(text + (f", {done.failed:,} failed" if done.failed else ""))
    return lines


def _expected(known: CallForecast) -> list[str]:
    if known.reason is not None:
        return [f"    prompts not known before it runs: {known.reason}"]
    rate = known.selectivity
    prompts = known.prompts.shown(size, known=rate is not None and rate.known)
    text = f"    {prompts} {'prompt' if prompts == '1' else 'prompts'}"
    if known.length is not None:
        text += f" of {known.length:,.0f} tokens"
    return [text, *([] if rate is None else [f"    {_selectivity(rate)}"])]


def _selectivity(rate: PassRate) -> str:
    if not rate.known:
        return "selectivity not known before it runs: 0% to 100%"
    found = Range(rate.low, rate.expected, rate.high).shown(share, known=True)
    return f"selectivity {found}, {_SOURCES.get(rate.source, rate.source)}"


def _figures(forecast: Forecast, actual: Actual | None) -> list[str]:
    """Calls, tokens, time and money, one line each."""
    head = "expected before anything runs:" if actual is None else "expected, and what it was:"
    lines = [head]
    for name, found, was, remark in _rows(forecast, actual):
        text = f"    {name:<{_WIDTH}}{found}"
        lines.append(text + ("" if was is None else f"; was {was}") + (remark and f"  ({remark})"))
    return lines + list(forecast.notes)


def _rows(forecast: Forecast, actual: Actual | None) -> Iterator[tuple[str, str, str | None, str]]:
    """The name of each figure, what is expected, what it was, and what it means."""

    def row(
        name: str, found: Range, show: Callable[[float], str], was: float | None, remark: str = ""
    ) -> tuple[str, str, str | None, str]:
        shown = None if actual is None or was is None else show(was)
        return name, found.shown(show, known=forecast.known), shown, remark

    done = actual or Actual(0, 0, 0, 0, 0.0, None, None)
    yield row("model calls", forecast.calls, size, done.calls)
    yield row("prompt tokens", forecast.requested, size, done.requested, "each prompt in full")
    yield row("computed tokens", forecast.fresh, size, done.fresh, "shared prefixes once")
    if actual is not None or forecast.fresh != forecast.minimum:
        yield row("minimum tokens", forecast.minimum, size, done.minimum)
    if forecast.seconds is not None:
        source = "rates measured here" if forecast.measured else "its datasheet, not measured yet"
        remark = f"on {forecast.device} by {source}; loading not counted"
        yield row("time", forecast.seconds, seconds, done.seconds, remark)
    if forecast.roofline is not None:
        yield row("roofline", forecast.roofline, seconds, None, "the least its datasheet allows")
    if forecast.peak is not None:
        most = Range.exactly(forecast.peak.high)
        yield row("memory", most, megabytes, done.peak, "at most, for documents read again")
    if forecast.money is not None:
        remark = "" if forecast.price is None else f"at ${forecast.price:.2f} an hour"
        yield row("money", forecast.money, money, done.money, remark)


def explain_values(
    plan: PhysicalPlan, forecast: Forecast, actual: Actual | None = None
) -> dict[str, Any]:
    """What `explain` prints, as plain values; NULL stands for what is not bounded."""
    steps: list[dict[str, Any]] = []
    for step in plan.steps:
        if isinstance(step, Load):
            known = forecast.loads.get(step.table, _NOT_LOADED)
            where = [one_line(condition) for condition in step.pushed]
            steps.append({"step": "load", "source": step.alias, "where": where} | asdict(known))
        elif isinstance(step, Ask):
            steps.append(_ask_values(step, forecast, actual))
        elif isinstance(step, Pipeline):
            decision, order = _in_order(step, forecast)
            asks = [_ask_values(ask, forecast, actual) for ask in order]
            why = None if decision is None else decision.reason
            pipeline = {"step": "batches", "rows_needed": step.needed, "order": why, "asks": asks}
            steps.append(pipeline)
        elif isinstance(step, Prune):
            steps.append({"step": "limit"})
        elif isinstance(step, Match):
            steps.append({"step": "pairs", "call": one_line(step.condition)})
    on_demand = [
        {
            "call": one_line(plan.sql[slice(*plan.calls[index].span)]),
            "because": plan.on_demand[index],
        }
        | _call_values(index, forecast, actual)
        for index in _on_demand(plan)
    ]
    left_out = ("asked", "loads", "decisions")
    expected = {k: v for k, v in asdict(forecast).items() if k not in left_out}
    found = {"steps": steps, "on_demand": on_demand, "expected": expected}
    if actual is not None:
        found["happened"] = {k: v for k, v in asdict(actual).items() if k != "asked"}
    values: dict[str, Any] = _finite(found)
    return values


def _ask_values(ask: Ask, forecast: Forecast, actual: Actual | None) -> dict[str, Any]:
    call = {"step": "ask", "call": one_line(ask.condition)}
    return call | _call_values(ask.call, forecast, actual)


def _call_values(index: int, forecast: Forecast, actual: Actual | None) -> dict[str, Any]:
    known = forecast.asked.get(index)
    values: dict[str, Any] = {} if known is None else {"expected": asdict(known)}
    done = None if actual is None else actual.asked.get(index)
    return values | ({} if done is None else {"happened": asdict(done)})


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
