"""A physical plan as text that needs no prior knowledge to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from covey.plan.nodes import Ask, Limit, Load, PhysicalPlan


class Estimate(Protocol):
    """What the optimizer knows of one step; see `covey.optimizer.estimate`."""

    @property
    def rows(self) -> int | None: ...

    @property
    def tokens(self) -> float | None: ...


def explain(plan: PhysicalPlan, estimates: Sequence[Estimate]) -> str:
    """The steps of a plan, one paragraph each, and the calls that run on demand."""
    lines = []
    for number, (step, known) in enumerate(zip(plan.steps, estimates, strict=True), 1):
        if isinstance(step, Load):
            lines += _load(number, step, known)
        elif isinstance(step, Ask):
            lines += _ask(f"{number}. ask", step, known)
        elif isinstance(step, Limit):
            for ask in step.asks:
                lines += _ask(f"{number}. ask", ask, known)
            lines.append(f"    in batches, until {step.needed:,} rows are found")
        else:
            lines.append(f"{number}. keep only the rows that LIMIT lets through")
    for call in plan.calls:
        if call.index in plan.on_demand:
            written = _one_line(plan.sql[slice(*call.span)])
            lines.append(f"on demand: {written}")
            lines.append(f"    because {plan.on_demand[call.index]}")
    lines.append("then DuckDB runs the rest" if plan.calls else "DuckDB runs all of it")
    return "\n".join(lines)


def _load(number: int, load: Load, known: Estimate) -> list[str]:
    rows = "rows depend on earlier answers" if known.rows is None else f"{known.rows:,} rows"
    lines = [f"{number}. load {load.alias}: {rows}"]
    lines += [f"    where {_one_line(condition)}" for condition in load.pushed]
    return lines


def _ask(head: str, ask: Ask, known: Estimate) -> list[str]:
    lines = [f"{head} {_one_line(ask.condition)}"]
    if known.rows is None or known.tokens is None:
        lines.append("    prompts depend on earlier answers")
    else:
        tokens = known.rows * known.tokens
        lines.append(f"    at most {known.rows:,} prompts, about {tokens:,.0f} tokens of documents")
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
