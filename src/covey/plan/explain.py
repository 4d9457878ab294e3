"""A physical plan as text that needs no prior knowledge to read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

from covey.plan.nodes import Ask, Flow, Load, PhysicalPlan


class Estimate(Protocol):
    """What the optimizer knows of one step; see `covey.optimizer.estimate`."""

    @property
    def rows(self) -> int | None: ...

    @property
    def tokens(self) -> float | None: ...


def explain(plan: PhysicalPlan, estimates: Mapping[Load | Ask, Estimate]) -> str:
    """The steps of a plan, one paragraph each, and the calls that run on demand."""
    lines: list[str] = []
    numbers = itertools.count(1)
    for step in plan.steps:
        if isinstance(step, Load):
            lines += _load(next(numbers), step, estimates[step])
        elif isinstance(step, Ask):
            lines += _ask(next(numbers), step, estimates[step])
        elif isinstance(step, Flow):
            for ask in step.asks:
                lines += _ask(next(numbers), ask, estimates[ask])
            if step.needed is not None:
                lines.append(f"    in batches, until {_count(step.needed, 'row')} are found")
        else:
            lines.append(f"{next(numbers)}. keep only the rows that LIMIT lets through")
    for call in plan.calls:
        if call.index in plan.on_demand:
            written = one_line(plan.sql[slice(*call.span)])
            lines.append(f"on demand: {written}")
            lines.append(f"    because {plan.on_demand[call.index]}")
    lines.append("then DuckDB runs the rest" if plan.calls else "DuckDB runs all of it")
    return "\n".join(lines)


def _load(number: int, load: Load, known: Estimate) -> list[str]:
    rows = "rows depend on earlier answers" if known.rows is None else _count(known.rows, "row")
    lines = [f"{number}. load {load.alias}: {rows}"]
    lines += [f"    where {one_line(condition)}" for condition in load.pushed]
    return lines


def _ask(number: int, ask: Ask, known: Estimate) -> list[str]:
    lines = [f"{number}. ask {one_line(ask.condition)}"]
    if known.rows is None or known.tokens is None:
        lines.append("    prompts depend on earlier answers")
    else:
        tokens = known.rows * known.tokens
        lines.append(f"    at most {known.rows:,} prompts, about {tokens:,.0f} tokens of documents")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def one_line(text: str) -> str:
    """A text of the query with its line breaks and runs of blanks made one blank."""
    return " ".join(text.split())
