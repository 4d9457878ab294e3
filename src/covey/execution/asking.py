"""What the steps of a plan need of whoever asks, and what is under way with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from covey.arrays import Bool, Int64
from covey.logical.calls import AICall


@dataclass(slots=True, eq=False)
class Ticket:
    """Prompts under way with the engine.

    Attributes:
        call: asks them.
        documents: (n, arity) ids, as they were last submitted.
        keys: (n,) int64, one a prompt; see `AnswerTable.keys`.
        reads: see `PromptBatch.reads`.
        open: (n,) whether each has no answer yet.
        left: how many these are.
    """

    call: AICall
    documents: Int64
    keys: Int64
    reads: float
    open: Bool = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.documents)
        self.open = np.ones(self.left, np.bool_)

    def answered(self, rows: Int64) -> None:
        """The prompts at (m,) places have their answers."""
        self.open[rows] = False
        self.left -= len(rows)

    def drop_answered(self) -> None:
        """Keep only the prompts that are open, to submit them anew."""
        self.documents, self.keys = self.documents[self.open], self.keys[self.open]
        self.__post_init__()


Tickets = frozenset[Ticket]


class Asking(Protocol):
    """Asks calls about documents: a model (`Asker`), or nobody (`DryAsker`)."""

    def ask(self, call: AICall, documents: Int64) -> None:
        """Ask about (n, arity) distinct document ids, none NULL, and wait for the answers."""

    def submit(self, call: AICall, documents: Int64, reads: float = 0.0) -> Tickets:
        """Queue prompts about documents, as `ask`, that have no answer and are not under way.

        Args:
            reads: see `PromptBatch.reads`.

        Returns:
            tickets for `done`, empty where every answer is there.
        """

    def done(self, tickets: Tickets) -> bool:
        """Whether all prompts of some tickets have their answers."""

    def wait(self) -> tuple[Ticket, Int64] | None:
        """Work until some answers are there: the ticket, and the (n, arity) documents answered.

        None where nothing was left to answer.
        """

    def reached(self, share: float) -> None:
        """That share of the rows, in (0, 1], has been taken up by now, for what is shown."""

    def release(self, documents: Int64) -> None:
        """Documents, (n,) ids, will not be anchors again."""

    def capacity(self) -> int | None:
        """Tokens that can be held at once; None while that is not known."""

    def check_budget(self) -> None:
        """See that the query keeps to its budget while no model works.

        Raises:
            BudgetError: a limit is passed.
        """
