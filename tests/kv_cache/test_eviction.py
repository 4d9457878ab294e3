"""What goes first: the least expected seconds saved per slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.engine.kv_cache.eviction import EvictionQueue, RecomputeCost
from kv_cache.books import bare_node

COST = RecomputeCost(token_seconds=7e-6, pair_seconds=1e-9)


def test_seconds_count_every_query_and_key() -> None:
    pairs = sum(depth + 1 for depth in range(100, 105))
    assert COST.seconds(100, 5) == pytest.approx(5 * 7e-6 + pairs * 1e-9)


def test_value_is_expected_seconds_per_slot() -> None:
    assert COST.saved(0, 10, 0.5) == pytest.approx(0.05 * COST.seconds(0, 10))
    # Deeper and likelier is worth more; length matters through attention alone.
    assert COST.saved(9_000, 10, 1.0) > COST.saved(10, 10, 1.0)
    assert COST.saved(10, 10, 0.2) < COST.saved(10, 10, 0.3)
    linear = RecomputeCost(1.0, 0.0)
    assert linear.saved(5, 1, 1.0) == linear.saved(5, 900, 1.0)


def test_among_equals_the_newest_goes() -> None:
    queue, nodes = EvictionQueue(), [bare_node(number) for number in (3, 9, 5)]
    for node in nodes:
        queue.push(node, 1.0)
    assert queue.min() is nodes[1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "remove", "take"]), st.integers(0, 6), st.integers(0, 4)
        ),
        max_size=300,
    )
)
def test_the_queue_is_a_dictionary_with_a_minimum(steps: list[tuple[str, int, int]]) -> None:
    queue, model = EvictionQueue(), dict[int, float]()
    nodes = [bare_node(number) for number in range(7)]
    for step, number, value in steps:
        if step == "push":
            queue.push(nodes[number], float(value))
            model[number] = float(value)
        elif step == "remove":
            queue.remove(nodes[number])
            model.pop(number, None)
        else:
            expected = min(model, key=lambda n: (model[n], -n)) if model else None
            found = queue.min()
            assert (None if found is None else found.number) == expected
            if found is not None:
                queue.remove(found)
                del model[found.number]
        assert [node in queue for node in nodes] == [n in model for n in range(7)]
