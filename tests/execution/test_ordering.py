"""Orders of conditions: cheap rejecters first, joins where they cost least, ten tables in time."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence

import pytest

from covey.estimate.cost import Lengths, Work
from covey.execution.ordering.facts import AskCost, ConditionCost
from covey.execution.ordering.search import Orders


def filter_on(source: int, question: float, document: float) -> ConditionCost:
    size = Lengths.fixed(document)
    ask = AskCost(
        object(), ("text", source), source, frozenset({source}), 1.0, size, 0.0,
        Lengths.fixed(question),
    )  # fmt: skip
    return ConditionCost(frozenset({source}), (ask,))


def join_of(anchor: int, partner: int, document: float, suffix: float) -> ConditionCost:
    sources = frozenset({anchor, partner})
    ask = AskCost(
        object(), ("text", anchor), anchor, sources, 1.0, Lengths.fixed(document), 40.0,
        Lengths.fixed(suffix),
    )  # fmt: skip
    return ConditionCost(sources, (ask,))


def tokens(work: Work) -> float:
    return work.fresh + 1e-4 * work.pairs


def priced(
    conditions: Sequence[ConditionCost], rows: Sequence[float], rates: Sequence[float]
) -> Orders:
    def share(some: frozenset[int]) -> float:
        return math.prod(rates[s] for s in some)

    return Orders(conditions, rows, {}, share, rates, tokens, math.inf)


def test_filters_of_one_source_stand_by_rank_once_the_document_is_paid():
    sizes, rates = [50.0, 200.0, 40.0, 90.0], [0.5, 0.1, 0.9, 0.4]
    orders = priced([filter_on(0, size, 0.0) for size in sizes], [1000.0], rates)
    rank = sorted(range(4), key=lambda i: sizes[i] / (1.0 - rates[i]))
    assert orders.best(range(4)) == tuple(rank)


def test_the_first_filter_pays_for_the_document_and_the_others_for_their_question():
    orders = priced([filter_on(0, 50.0, 300.0), filter_on(0, 70.0, 300.0)], [100.0], [0.5, 0.5])
    assert orders.cost((0, 1)).fresh == pytest.approx(100 * 350 + 50 * 70)
    assert orders.cost((1, 0)).fresh == pytest.approx(100 * 370 + 50 * 50)


def test_a_filter_that_is_dearer_than_the_join_rejects_stands_above_it():
    conditions = [filter_on(0, 700.0, 300.0), join_of(0, 1, 300.0, 9.0)]
    rarely = priced(conditions, [400.0, 12.0], [0.95, 0.01])
    often = priced(conditions, [400.0, 12.0], [0.05, 0.9])
    assert rarely.best((0, 1)) == (1, 0)
    assert often.best((0, 1)) == (0, 1)


@pytest.mark.parametrize("seed", range(12))
def test_no_order_is_cheaper_than_the_one_that_is_found(seed):
    rng = random.Random(seed)
    rows = [float(rng.choice([12, 80, 400, 2000])) for _ in range(3)]
    lengths = [float(rng.choice([5, 60, 300])) for _ in rows]
    conditions = [join_of(0, 1, lengths[0], 20.0), join_of(1, 2, lengths[1], 20.0)]
    for _ in range(3):
        source = rng.randrange(3)
        conditions.append(filter_on(source, float(rng.choice([30, 80, 400])), lengths[source]))
    orders = priced(conditions, rows, [rng.choice([0.01, 0.2, 0.6, 0.95]) for _ in conditions])
    found = tokens(orders.cost(orders.best(range(5))))
    least = min(tokens(orders.cost(order)) for order in itertools.permutations(range(5)))
    assert found == pytest.approx(least)


def test_what_was_asked_of_the_same_texts_is_not_paid_again():
    one, other = filter_on(0, 50.0, 300.0), filter_on(1, 50.0, 300.0)
    same = ConditionCost(
        other.sources,
        (AskCost(one.asks[0].prompt, one.asks[0].anchor, 1, frozenset({1}), 1.0,
                 other.asks[0].document, 0.0, other.asks[0].suffix),),
    )  # fmt: skip
    orders = priced([one, same], [100.0, 100.0], [0.5, 0.5])
    assert orders.cost((0, 1)).fresh == pytest.approx(100 * 350)


def test_a_chain_of_ten_tables_with_ten_filters_is_ordered_in_a_second_of_work():
    rng = random.Random(5)
    rows = [float(rng.choice([12, 100, 1000])) for _ in range(10)]
    conditions = [join_of(i, i + 1, 200.0, 15.0) for i in range(9)]
    conditions += [filter_on(i, 50.0, 200.0) for i in range(10)]
    rates = [rng.choice([0.02, 0.3, 0.7]) for _ in conditions]
    started = time.process_time()
    orders = priced(conditions, rows, rates)
    found = orders.best(range(len(conditions)))
    spent = time.process_time() - started
    assert sorted(found) == list(range(19))
    assert tokens(orders.cost(found)) <= tokens(orders.cost(range(19)))
    # Not a measurement: it fails when the work explodes.
    assert spent < 5.0


@pytest.mark.parametrize("count", [8, 16, 64, 200])
def test_orders_of_any_number_of_conditions_are_searched_within_bounds(count):
    draw = random.Random(count)
    conditions = [filter_on(0, draw.uniform(20.0, 200.0), 300.0) for _ in range(count)]
    rates = [draw.uniform(0.1, 0.9) for _ in range(count)]
    priced_works: list[Work] = []

    def counted(work: Work) -> float:
        priced_works.append(work)
        return tokens(work)

    orders = priced(conditions, [1000.0], rates)
    orders._seconds = counted
    best = orders.best(range(count))
    assert sorted(best) == list(range(count))
    assert len(priced_works) <= 10_000 + 60 * count
    as_given = tokens(orders.cost(range(count)))
    by_rank = sorted(range(count), key=orders._rank)
    found = tokens(orders.cost(best))
    assert found <= as_given and found <= tokens(orders.cost(by_rank))


def test_conditions_that_ask_the_same_stand_together():
    one, other = filter_on(0, 50.0, 300.0), filter_on(0, 60.0, 300.0)
    conditions = [one, other] * 20
    order = priced(conditions, [1000.0], [0.5] * 40).best(range(40))
    assert order in (
        (*range(0, 40, 2), *range(1, 40, 2)),
        (*range(1, 40, 2), *range(0, 40, 2)),
    )
