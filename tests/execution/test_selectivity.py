"""Selectivity estimates: hints, samples, and what is observed behind others."""

from __future__ import annotations

import numpy as np
import pytest

from covey.execution.ordering.selectivity import Beta, SelectivityEstimates


def test_nothing_known_is_an_interval_over_almost_everything():
    low, high = Beta().interval()
    assert (low, high) == (pytest.approx(0.05, abs=0.01), pytest.approx(0.95, abs=0.01))


def test_the_interval_holds_its_share_of_draws():
    rng = np.random.default_rng(0)
    beta = Beta().after(40, 10)
    low, high = beta.interval()
    inside = np.mean([low <= beta.draw(rng) <= high for _ in range(4000)])
    assert inside == pytest.approx(0.9, abs=0.02)


def test_answers_narrow_the_interval_around_their_share():
    few, many = (Beta().after(n, 0.3 * n).interval() for n in (10, 1000))
    assert few[0] < many[0] < 0.3 < many[1] < few[1]


def test_a_hint_is_kept_while_answers_do_not_contradict_it_and_dropped_when_they_do():
    fitting, wrong = SelectivityEstimates([0.9]), SelectivityEstimates([0.9])
    fitting.sampled(0, range(20), [True] * 17 + [False] * 3)
    wrong.sampled(0, range(20), [True] + [False] * 19)
    assert fitting.of(0).mean == pytest.approx(0.87, abs=0.04)
    assert wrong.of(0).mean == pytest.approx(2 / 22)
    assert (fitting.sources, fitting.seen) == (["sampled"], [20])


def test_conditions_that_go_together_are_seen_in_the_rows_they_share():
    estimates = SelectivityEstimates([None, None, None])
    half = [i % 2 == 0 for i in range(100)]
    for condition, passed in enumerate((half, half, [not p for p in half])):
        estimates.sampled(condition, range(100), passed)
    assert estimates.share(frozenset({0, 1})) == pytest.approx(0.5, abs=0.03)
    assert estimates.share(frozenset({0, 2})) == pytest.approx(0.0, abs=0.03)


def test_what_is_observed_behind_others_goes_before_independence():
    estimates = SelectivityEstimates([0.5, 0.5])
    estimates.observed(0, frozenset(), 200, 100)
    estimates.observed(1, frozenset({0}), 100, 95)
    assert estimates.share(frozenset({0, 1})) == pytest.approx(0.475, abs=0.02)
