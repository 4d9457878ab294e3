"""Limits on what a query may take: checked before it runs, and while it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from covey.errors import BudgetError, InputError
from covey.estimate.figures import money, seconds, size
from covey.estimate.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a query may take; None is no limit.

    Attributes:
        max_calls: model calls: distinct prompts.
        max_tokens: tokens computed.
        max_seconds: of the run, loading the model apart.
        max_cost: US dollars, at the device's price an hour.

    Raises:
        InputError: a limit is no number above or equal to 0.
    """

    max_calls: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < math.inf:
                raise InputError(f"{item.name} is a number of at least 0, not {value!r}.")

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return any(getattr(self, item.name) is not None for item in fields(self))

    def override(self, other: Budget) -> Budget:
        """This budget with what the other one gives in its place."""
        given = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(self, **{name: v for name, v in given.items() if v is not None})

    def refuse(self, forecast: Forecast) -> None:
        """Refuse what cannot keep to it.

        Raises:
            BudgetError: even the low estimate is above a limit.
        """
        for name, limit, found in (
            ("max_calls", self.max_calls, forecast.calls),
            ("max_tokens", self.max_tokens, forecast.fresh),
            ("max_seconds", self.max_seconds, forecast.seconds),
            ("max_cost", self.max_cost, forecast.money),
        ):
            if limit is not None and found is not None and found.low > limit:
                raise BudgetError(
                    f"The query needs at least {_shown(name, found.low)}, and {name} allows "
                    f"{_shown(name, limit)}. No model call was made. Raise {name}, or narrow "
                    "the query; its explain() shows where the cost lies."
                )


NO_BUDGET = Budget()


class BudgetGuard:
    """Stops a run that passes its budget.

    Args:
        budget: the limits.
        price: US dollars an hour; None where it is not known.
        clock: seconds that only grow; a test gives its own.
    """

    def __init__(
        self, budget: Budget, price: float | None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._budget = budget
        self._price = price
        self._kept = False
        self._clock = clock
        self._started: float | None = None
        self._calls = 0
        self._answered = 0
        self._tokens = 0

    def start(self, kept: bool = False) -> None:
        """The model is loaded and work begins, the first time it is told.

        Args:
            kept: whether answers are kept for a later run.
        """
        self._kept = kept
        if self._started is None:
            self._started = self._clock()

    def paused(self, seconds: float) -> None:
        """For so long the run stood still: that does not count."""
        if self._started is not None:
            self._started += seconds

    def before(self, prompts: int) -> None:
        """So many more prompts are about to be asked.

        Raises:
            BudgetError: they are more than `max_calls` leaves.
        """
        limit = self._budget.max_calls
        if limit is not None and self._calls + prompts > limit:
            self._stop("max_calls", self._calls + prompts, limit, "would have made")
        self._calls += prompts

    def after(self, answered: int, tokens: int) -> None:
        """So many prompts were answered, with so many tokens computed for them.

        Raises:
            BudgetError: a limit is passed.
        """
        self._answered += answered
        self._tokens += tokens
        budget, taken = self._budget, 0.0
        if self._started is not None:
            taken = self._clock() - self._started
        cost = 0.0 if self._price is None else taken * self._price / 3600.0
        for name, limit, found, verb in (
            ("max_tokens", budget.max_tokens, self._tokens, "computed"),
            ("max_seconds", budget.max_seconds, taken, "took"),
            ("max_cost", budget.max_cost, cost, "cost"),
        ):
            if limit is not None and found > limit:
                self._stop(name, found, limit, verb)

    def _stop(self, name: str, found: float, limit: float, verb: str) -> None:
        some = "prompt was" if self._answered == 1 else "prompts were"
        kept = ", and those answers are kept: the next run asks only the rest" if self._kept else ""
        raise BudgetError(
            f"The query was stopped: it {verb} {_shown(name, found)}, and {name} allows "
            f"{_shown(name, limit)}. {self._answered:,} {some} answered{kept}. "
            f"Raise {name}, or narrow the query."
        )


def _shown(name: str, value: float) -> str:
    if name == "max_seconds":
        return seconds(value)
    if name == "max_cost":
        return money(value)
    what, shown = "model call" if name == "max_calls" else "token", size(value)
    return f"{shown} {what}" if shown == "1" else f"{shown} {what}s"
