"""What the steps of a plan need of whoever asks."""

from __future__ import annotations

from typing import Protocol

from covey.arrays import Int64
from covey.logical.calls import AICall


class Asking(Protocol):
    """Asks calls about documents; see `covey.execution.ask.Asker`, which asks a model."""

    def ask(self, call: AICall, documents: Int64) -> None:
        """Ask about tuples of documents, (n, arity) distinct ids, and wait for the answers."""
        ...

    def submit(self, call: AICall, documents: Int64, reads: float = 0.0) -> frozenset[int]:
        """Queue prompts; return tickets for `done`, none where every answer is there."""
        ...

    def done(self, tickets: frozenset[int]) -> bool:
        """Whether all prompts of some tickets have their answers."""
        ...

    def wait(self) -> tuple[int, Int64] | None:
        """Work until some answers are there.

        Returns:
            the ticket and the (n, arity) documents that were answered, or None.
        """
        ...

    def reached(self, share: float) -> None:
        """That share of the rows, in (0, 1], has been taken up by now, for what is shown."""
        ...

    def release(self, documents: Int64) -> None:
        """Documents, (n,) ids, will not be anchors again."""
        ...

    def capacity(self) -> int | None:
        """Tokens that can be held at once; None while that is not known."""
        ...

    def check_budget(self) -> None:
        """See that the query keeps to its budget while no model works.

        Raises:
            BudgetError: a limit is passed.
        """
        ...
