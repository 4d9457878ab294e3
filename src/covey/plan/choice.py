"""What is decided while a plan runs: the facts that go in, the record that comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from covey.plan.nodes import DocumentColumn, Pipeline


@dataclass(frozen=True, slots=True)
class Texts:
    """What is known of the documents of a column.

    Attributes:
        rows: rows of its source that have one.
        distinct: different documents among them.
        some: a few of them, to be measured.
    """

    rows: int
    distinct: int
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What is known of a pipeline once its sources are loaded.

    Attributes:
        rows: rows of each source.
        texts: by column of documents.
        matches: by the sources of an operator, the share of their combinations that conditions
            without a model let through; 1 where it is missing.
    """

    rows: tuple[int, ...]
    texts: Mapping[DocumentColumn, Texts]
    matches: Mapping[frozenset[int], float]


@dataclass(frozen=True, slots=True)
class KnownSelectivity:
    """The share of a condition's rows that pass, as a decision took it.

    Attributes:
        condition: as the user wrote its calls.
        expected: the mean of what is believed.
        low, high: between which it lies with 90% belief.
        source: "given" by the query, "sampled", "observed" while it ran, or "unknown".
        seen: rows that this rests on.
    """

    condition: str
    expected: float
    low: float
    high: float
    source: str
    seen: int


@dataclass(frozen=True, slots=True)
class Decision:
    """An order that was chosen, or changed, and why.

    Attributes:
        kind: "order" for the first, "sample" before one that rests on samples, "change".
        reason: one sentence.
        order: the conditions, as the user wrote their calls, in the new order.
        before: in the old order; empty for the first.
        seconds: expected time of the rest in the new order, by the rates at hand.
        seconds_before: in the old order; None for the first.
        rates: what was known of the pass rates.
        rows: rows of the pipeline's source that were through at the time.
    """

    kind: str
    reason: str
    order: tuple[str, ...]
    before: tuple[str, ...]
    seconds: float
    seconds_before: float | None
    rates: tuple[KnownSelectivity, ...]
    rows: int = 0


class OrderChoice(Protocol):
    """The decisions of one pipeline; operators are positions in `Pipeline.operators`."""

    def order(self) -> tuple[int, ...]:
        """The conditions in the order that is best by what is known."""
        ...

    def samples(self) -> Mapping[int, int]:
        """Prompts worth asking about random rows before the order is chosen, by operator."""
        ...

    def trial(self, rows: int) -> int:
        """How many random rows go through alone before the others.

        Args:
            rows: of the pipeline's source.
        """
        ...

    def sampled(
        self,
        operator: int,
        rows: Sequence[int],
        passed: Sequence[bool],
        needed: Sequence[float] = (),
    ) -> None:
        """Tell of the rows, by row id or number of pair, that a random sample had.

        Args:
            operator: which was asked.
            rows: of the sample.
            passed: whether each passes.
            needed: for each ask of the operator, the share of the rows that it was needed for.
        """
        ...

    def observed(self, operator: int, decided: tuple[int, ...], rows: int, passed: int) -> None:
        """Tell of rows that had passed some operators, and how many of them pass one more."""
        ...

    def review(self, rows: int, at_once: bool = False) -> bool:
        """Change the order if that is worth it; say whether it changed.

        Args:
            rows: of the pipeline's source that are through.
            at_once: look even if little was observed since the last time.
        """
        ...

    @property
    def decisions(self) -> Sequence[Decision]:
        """All so far, in the order in which they were made."""
        ...


class Chooser(Protocol):
    """Decides for the pipelines of one statement."""

    def open(self, pipeline: Pipeline, facts: PipelineFacts) -> OrderChoice:
        """Begin with one pipeline."""
        ...
