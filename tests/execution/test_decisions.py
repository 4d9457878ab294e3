"""Chosen orders against the best of all, by planted queries; `bench/decisions.py` has more."""

from __future__ import annotations

import pytest

from covey.execution.ordering.chooser import NOMINAL_RATES
from decision_queries import QUERIES
from decisions import Replay, World, recovered, score

NAMES = ("imdb-4", "fev-10", "lep-4", "short texts", "filter above the join", "nothing passes")
SHAPES = {shape.name: shape for shape in QUERIES}


@pytest.fixture(scope="module")
def scores():
    return [score(SHAPES[name], scale=0.7) for name in NAMES]


def test_orders_by_given_rates_are_near_the_best(scores):
    assert {s.name: round(s.given, 2) for s in scores if s.given > 1.15} == {}


def test_orders_by_sampled_rates_are_not_far_from_the_best(scores):
    assert {s.name: round(s.sampled, 2) for s in scores if s.sampled > 1.5} == {}


def test_most_of_what_wrong_rates_lose_is_recovered(scores):
    assert max(s.static for s in scores) > 1.5, "the rates are not wrong enough"
    assert recovered(scores) >= 0.7


@pytest.mark.parametrize("name", ["imdb-5", "bio-4", "fev-9", "fev-10", "star of three"])
def test_the_executor_asks_what_the_replay_counts(name):
    """Few rows: nothing is sampled or tried, so that one order is kept."""
    world = World(SHAPES[name], scale=0.1)
    run = world.run(world.sql(lambda asked, rate: rate))
    assert len(run.orders) == 1
    order = [world.number_of(written) for written in run.orders[0]]
    assert NOMINAL_RATES.seconds(run.work) == pytest.approx(Replay(world).seconds(order))
    assert NOMINAL_RATES.seconds(run.work) >= 0.999 * Replay(world).best()[0]
