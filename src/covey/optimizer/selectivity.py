"""What is believed of pass rates: Beta distributions, and how conditions go together.

A rate is never a number alone. Without a word of the user and without answers it is the
uniform distribution, whose interval says that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

# Answered rows that the user's word on a rate counts for, and the belief that it holds at
# all: answers that it makes unlikely overrule it.
GIVEN_ROWS = 12.0
GIVEN_HOLDS = 0.8
# Sampled rows that the assumption counts for that two conditions are independent.
INDEPENDENT_ROWS = 6.0
# Rows from which on what was observed of a condition behind others goes before a sample.
ENOUGH_ROWS = 40
_GRID = 2000


@dataclass(frozen=True, slots=True)
class Beta:
    """A distribution of a rate: density proportional to p^(a - 1) (1 - p)^(b - 1).

    Attributes:
        a, b: pseudo-counts of rows that pass and that do not, each at least 1.
    """

    a: float = 1.0
    b: float = 1.0

    @classmethod
    def given(cls, rate: float) -> Beta:
        """The user's word."""
        return cls(1.0 + GIVEN_ROWS * rate, 1.0 + GIVEN_ROWS * (1.0 - rate))

    def after(self, rows: float, passed: float) -> Beta:
        """What is believed once so many more rows were answered."""
        return Beta(self.a + passed, self.b + rows - passed)

    def likelihood(self, rows: float, passed: float) -> float:
        """Logarithm of the belief that just these rows would pass (beta-binomial)."""
        after = self.after(rows, passed)
        return _log_beta(after.a, after.b) - _log_beta(self.a, self.b)

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    def interval(self) -> tuple[float, float]:
        """The central interval that holds 90% of the belief, to three digits."""
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


@dataclass
class SelectivityEstimates:
    """Pass rates of the operators of a pipeline, alone and together.

    Attributes:
        given: the user's word on each operator, None where there is none.
        sources: by operator, where what is believed of it is from; see `KnownSelectivity.source`.
        seen: by operator, rows it rests on.
        passed: by operator, those of them that pass.
    """

    given: Sequence[float | None]
    sources: list[str] = field(init=False)
    seen: list[int] = field(init=False)
    passed: list[int] = field(init=False)
    _samples: dict[int, dict[int, bool]] = field(init=False, default_factory=dict)
    # By the operators of which rows passed all, and the last of them: rows it was asked, and true.
    _behind: dict[frozenset[int], dict[int, tuple[int, int]]] = field(
        init=False, default_factory=dict
    )
    _means: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.sources = ["unknown" if rate is None else "given" for rate in self.given]
        self.seen = [0] * len(self.given)
        self.passed = [0] * len(self.given)

    def rate(self, operator: int) -> Beta:
        """What is believed of the pass rate of an operator, for a random row."""
        given, rows, passed = self.given[operator], self.seen[operator], self.passed[operator]
        if given is None:
            return Beta().after(rows, passed)
        word = Beta.given(given)
        holds = math.log(GIVEN_HOLDS) + word.likelihood(rows, passed)
        fails = math.log(1.0 - GIVEN_HOLDS) + Beta().likelihood(rows, passed)
        return (word if holds >= fails else Beta()).after(rows, passed)

    def sampled(self, operator: int, rows: Sequence[int], passed: Sequence[bool]) -> None:
        """A random sample was answered; rows of one number are one row for all operators."""
        answers = self._samples.setdefault(operator, {})
        answers.update(zip(rows, map(bool, passed), strict=True))
        self._learn(operator, len(rows), sum(map(bool, passed)), "sampled")

    def observed(self, operator: int, behind: frozenset[int], rows: int, passed: int) -> None:
        """Rows that had passed the operators `behind` were answered."""
        if not rows:
            return
        told = self._behind.setdefault(behind | {operator}, {})
        asked, true = told.get(operator, (0, 0))
        told[operator] = (asked + rows, true + passed)
        # A sample is of all rows; these are of those that others let through.
        if not behind or self.sources[operator] != "sampled":
            self._learn(operator, rows, passed, "observed")

    def share(self, operators: frozenset[int], rates: Sequence[float] | None = None) -> float:
        """The share of rows that pass all of some operators over one source.

        By what was observed of one of them behind the others where that is enough, else by
        the sample, drawn towards independence.

        Args:
            operators: of one source.
            rates: pass rates to assume in the place of the expected ones.
        """
        if rates is not None:
            return math.prod(rates[s] for s in sorted(operators))
        behind = 1.0
        while len(operators) > 1:
            told = self._behind.get(operators, {})
            last = max(told, key=lambda operator: told[operator][0], default=None)
            if last is None or told[last][0] < ENOUGH_ROWS:
                return behind * self._sampled_share(operators)
            asked, passed = told[last]
            behind *= (passed + 1.0) / (asked + 2.0)
            operators -= {last}
        return behind * math.prod(self.mean(operator) for operator in operators)

    def mean(self, operator: int) -> float:
        """The expected pass rate of an operator."""
        if operator not in self._means:
            self._means[operator] = self.rate(operator).mean
        return self._means[operator]

    def _sampled_share(self, operators: frozenset[int]) -> float:
        """The share that passes all of some operators, by the sample drawn towards independence."""
        answers = [self._samples.get(s, {}) for s in operators]
        common = set(answers[0]).intersection(*answers[1:])
        both = sum(all(a[row] for a in answers) for row in common)
        prior = INDEPENDENT_ROWS * math.prod(self.mean(s) for s in sorted(operators))
        return (both + prior) / (len(common) + INDEPENDENT_ROWS)

    def draws(self, count: int, seed: int) -> list[list[float]]:
        """Pass rates of all operators drawn from what is believed, `count` times."""
        rng = np.random.default_rng(seed)
        return [
            [self._draw(operator, rng) for operator in range(len(self.given))] for _ in range(count)
        ]

    def _draw(self, operator: int, rng: np.random.Generator) -> float:
        # As long as nothing speaks for or against it, the user's word may be wrong.
        if not self.seen[operator] and rng.random() > GIVEN_HOLDS:
            return Beta().draw(rng)
        return self.rate(operator).draw(rng)

    def _learn(self, operator: int, rows: int, passed: int, source: str) -> None:
        self._means.pop(operator, None)
        self.seen[operator] += rows
        self.passed[operator] += passed
        self.sources[operator] = source
