"""What a run did: kept while it runs, shown after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from covey.engine.base import Counters
from covey.plan.decisions import Decision

# A report names every reason but not every row of a large failure.
MAX_ERRORS_KEPT = 1000
# Reasons that a printed report names.
SHOWN_REASONS = 5


@dataclass(slots=True)
class OperatorReport:
    """One AI call of the text.

    Attributes:
        call: the call as written.
        prompts: prompts asked for it; what an equal call asked before is not counted.
        stored: prompts whose answers the store had from earlier runs.
        true: answers TRUE (margin above the threshold) of both kinds, for AI.IF.
        failed: prompts without an answer.
        seconds: time spent asking.
        how: "planned", or why it ran by fixpoint re-execution.
    """

    call: str
    how: str
    prompts: int = 0
    stored: int = 0
    true: int | None = None
    failed: int = 0
    seconds: float = 0.0

    @property
    def answers(self) -> int:
        """Prompts asked now, and those whose answers the store had."""
        return self.prompts + self.stored


@dataclass(frozen=True, slots=True)
class RowError:
    """A prompt without an answer: the call, the start of each document, the reason."""

    call: str
    documents: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class Report:
    """A finished run.

    Attributes:
        model: its name, None where no model was needed.
        rows: rows of the result.
        seconds: wall-clock time of the run, loading the model apart.
        load_seconds: time to load the model, 0 where it was loaded before.
        operators: one entry for each AI call.
        counters: the engine's account.
        errors: the first `MAX_ERRORS_KEPT` failed prompts.
        notes: what went on beside the answers and a person should know.
        decisions: orders of conditions that were chosen and changed, and why.
    """

    model: str | None = None
    rows: int = 0
    seconds: float = 0.0
    load_seconds: float = 0.0
    operators: list[OperatorReport] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    errors: list[RowError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def error_table(self) -> pa.Table:
        """The failed prompts: call, the start of each document, reason.

        It holds the first `MAX_ERRORS_KEPT`; the operators' `failed` counts all.
        """
        text = pa.string()
        kinds = {"call": text, "documents": pa.list_(text), "reason": text}
        documents = [[_printable(each) for each in e.documents] for e in self.errors]
        columns = ([e.call for e in self.errors], documents, [e.reason for e in self.errors])
        return pa.table(list(columns), schema=pa.schema(kinds))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        values = asdict(self)
        values["counters"]["recomputed_tokens"] = self.counters.recomputed_tokens
        values["counters"]["fill"] = self.counters.fill
        return values

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows in {self.seconds:.1f} s"]
        if self.model is not None:
            loading = f", loaded in {self.load_seconds:.1f} s" if self.load_seconds else ""
            lines.append(f"model {self.model}{loading}")
        lines += map(_operator_line, self.operators)
        if self.counters.prompts:
            lines += _counter_lines(self.counters)
        return "\n".join([*lines, *_failure_lines(self.errors), *self.notes])


def _failure_lines(errors: Sequence[RowError]) -> list[str]:
    """The commonest reasons for which prompts failed, and how many more there are."""
    reasons = Counter(error.reason for error in errors)
    shown = reasons.most_common(SHOWN_REASONS)
    lines = [f"failed: {count:,} x {reason}" for reason, count in shown]
    rest = len(errors) - sum(count for _, count in shown)
    if rest:
        kinds = len(reasons) - len(shown)
        lines.append(f"failed: {rest:,} more, for {kinds:,} other reasons; see error_table()")
    return lines


def _printable(text: str) -> str:
    """A text as Unicode: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def joined(reports: Sequence[Report]) -> Report:
    """One report of several runs, one behind the other; its rows are the last one's."""
    whole = Report()
    for report in reports:
        whole.model = report.model or whole.model
        whole.rows = report.rows
        whole.seconds += report.seconds
        whole.load_seconds += report.load_seconds
        whole.operators += report.operators
        whole.decisions += report.decisions
        whole.counters = _sum(whole.counters, report.counters)
        whole.errors += report.errors[: MAX_ERRORS_KEPT - len(whole.errors)]
        whole.notes += report.notes
    return whole


def _sum(one: Counters, other: Counters) -> Counters:
    values = {f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(Counters)}
    # The runs did not hold their slots at the same time.
    values["peak_slots"] = max(one.peak_slots, other.peak_slots)
    return Counters(**values)


def _operator_line(operator: OperatorReport) -> str:
    text = f"{operator.prompts:,} prompts"
    if operator.stored:
        text += f", {operator.stored:,} answers from the store"
    if operator.true is not None and operator.answers:
        text += f", {operator.true:,} TRUE ({operator.true / operator.answers:.0%})"
    if operator.failed:
        text += f", {operator.failed:,} failed"
    return f"{operator.call}: {text}, {operator.how}"


def _counter_lines(counters: Counters) -> list[str]:
    seconds = counters.device_seconds
    rate = f", {counters.fresh_tokens / seconds:,.0f} a second" if seconds > 0 else ""
    return [
        f"tokens: {counters.requested_tokens:,} requested, {counters.fresh_tokens:,} computed"
        f"{rate}; minimum {counters.minimum_tokens:,}, recomputed {counters.recomputed_tokens:,}",
        f"batches: {counters.batches:,}, {counters.fill:.0%} full; "
        f"device {seconds:.1f} s, host {counters.host_seconds:.1f} s",
    ]
