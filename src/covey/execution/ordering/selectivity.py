"""Selectivities of conditions: Beta distributions, and how conditions go together.

A selectivity is never a number alone. Without a hint and without answers it is the uniform
distribution, whose interval says that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Answered rows that a selectivity hint counts for, and the probability that it holds at all:
# answers that it makes unlikely overrule it.
HINT_ROWS = 12.0
HINT_HOLDS = 0.8
# Sampled rows that the assumption counts for that two conditions are independent.
INDEPENDENT_ROWS = 6.0
# Rows from which on what was observed of a condition behind others goes before a sample.
ENOUGH_ROWS = 40
_GRID = 2000


@dataclass(frozen=True, slots=True)
class Beta:
    """A distribution of a selectivity: density proportional to p^(a - 1) (1 - p)^(b - 1).

    Attributes:
        a, b: pseudo-counts of rows that pass and that do not, each at least 1.
    """

    a: float = 1.0
    b: float = 1.0

    @classmethod
    def hinted(cls, selectivity: float) -> Beta:
        """By a hint of the user's."""
        return cls(1.0 + HINT_ROWS * selectivity, 1.0 + HINT_ROWS * (1.0 - selectivity))

    def after(self, rows: float, passed: float) -> Beta:
        """The posterior once so many more rows were answered."""
        return Beta(self.a + passed, self.b + rows - passed)

    def likelihood(self, rows: float, passed: float) -> float:
        """Logarithm of the probability that just these rows would pass (beta-binomial)."""
        after = self.after(rows, passed)
        return _log_beta(after.a, after.b) - _log_beta(self.a, self.b)

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    def interval(self) -> tuple[float, float]:
        """The central interval that holds 90%, to three digits."""
        at = (np.arange(_GRID) + 0.5) / _GRID
        density = (self.a - 1.0) * np.log(at) + (self.b - 1.0) * np.log1p(-at)
        below = np.cumsum(np.exp(density - density.max()))
        below /= below[-1]
        low, high = np.searchsorted(below, [0.05, 0.95])
        return float(at[low]), float(at[min(high, _GRID - 1)])

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.beta(self.a, self.b))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


class SelectivityEstimates:
    """Selectivities of the conditions of a pipeline, alone and together.

    Args:
        hints: the user's, for each condition; None where there is none.

    Attributes:
        sources: by condition, where its estimate is from; see `KnownSelectivity.source`.
        seen: by condition, rows that it rests on.
    """

    def __init__(self, hints: Sequence[float | None]) -> None:
        self._hints = hints
        self.sources = ["unknown" if hint is None else "given" for hint in hints]
        self.seen = [0] * len(hints)
        self._passed = [0] * len(hints)
        self._samples: dict[int, dict[int, bool]] = {}
        # By the conditions of which rows passed all, and the last of them: rows it was asked, and
        # rows that passed.
        self._behind: dict[frozenset[int], dict[int, tuple[int, int]]] = {}
        self._means: dict[int, float] = {}

    def of(self, condition: int) -> Beta:
        """The distribution of a condition's selectivity, for a random row."""
        hint, rows, passed = self._hints[condition], self.seen[condition], self._passed[condition]
        if hint is None:
            return Beta().after(rows, passed)
        hinted = Beta.hinted(hint)
        holds = math.log(HINT_HOLDS) + hinted.likelihood(rows, passed)
        fails = math.log(1.0 - HINT_HOLDS) + Beta().likelihood(rows, passed)
        return (hinted if holds >= fails else Beta()).after(rows, passed)

    def sampled(self, condition: int, rows: Sequence[int], passed: Sequence[bool]) -> None:
        """A random sample was answered; rows of one number are one row for all conditions."""
        answers = self._samples.setdefault(condition, {})
        answers.update(zip(rows, map(bool, passed), strict=True))
        self._learn(condition, len(rows), sum(map(bool, passed)), "sampled")

    def observed(self, condition: int, behind: frozenset[int], rows: int, passed: int) -> None:
        """Rows that had passed the conditions `behind` were answered."""
        if not rows:
            return
        told = self._behind.setdefault(behind | {condition}, {})
        asked, before = told.get(condition, (0, 0))
        told[condition] = (asked + rows, before + passed)
        # A sample is of all rows; these are of those that others let through.
        if not behind or self.sources[condition] != "sampled":
            self._learn(condition, rows, passed, "observed")

    def share(
        self, conditions: frozenset[int], selectivities: Sequence[float] | None = None
    ) -> float:
        """The share of rows that pass all of some conditions over one source.

        By what was observed of one of them behind the others where that is enough, else by
        the sample, drawn towards independence.

        Args:
            conditions: on one source.
            selectivities: of all conditions, to assume in the place of the expected ones.
        """
        if selectivities is not None:
            return math.prod(selectivities[c] for c in sorted(conditions))
        behind = 1.0
        while len(conditions) > 1:
            told = self._behind.get(conditions, {})
            last = max(told, key=lambda condition: told[condition][0], default=None)
            if last is None or told[last][0] < ENOUGH_ROWS:
                return behind * self._sampled_share(conditions)
            asked, passed = told[last]
            behind *= (passed + 1.0) / (asked + 2.0)
            conditions -= {last}
        return behind * math.prod(self.mean(condition) for condition in conditions)

    def mean(self, condition: int) -> float:
        """The expected selectivity of a condition."""
        if condition not in self._means:
            self._means[condition] = self.of(condition).mean
        return self._means[condition]

    def draws(self, count: int, seed: int) -> list[list[float]]:
        """Selectivities of all conditions drawn from their distributions, `count` times."""
        rng = np.random.default_rng(seed)
        return [[self._draw(c, rng) for c in range(len(self._hints))] for _ in range(count)]

    def _sampled_share(self, conditions: frozenset[int]) -> float:
        answers = [self._samples.get(c, {}) for c in conditions]
        common = set(answers[0]).intersection(*answers[1:])
        passing = sum(all(a[row] for a in answers) for row in common)
        prior = INDEPENDENT_ROWS * math.prod(self.mean(c) for c in sorted(conditions))
        return (passing + prior) / (len(common) + INDEPENDENT_ROWS)

    def _draw(self, condition: int, rng: np.random.Generator) -> float:
        # As long as nothing speaks for or against it, the hint may be wrong.
        if not self.seen[condition] and rng.random() > HINT_HOLDS:
            return Beta().draw(rng)
        return self.of(condition).draw(rng)

    def _learn(self, condition: int, rows: int, passed: int, source: str) -> None:
        self._means.pop(condition, None)
        self.seen[condition] += rows
        self._passed[condition] += passed
        self.sources[condition] = source
