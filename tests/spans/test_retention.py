"""What goes first: the least expected seconds saved per slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.engine.retention import RecomputeCost, Retention

COST = RecomputeCost(token_seconds=7e-6, pair_seconds=1e-9)


def test_seconds_count_every_query_and_key() -> None:
    pairs = sum(depth + 1 for depth in range(100, 105))
    assert COST.seconds(100, 5) == pytest.approx(5 * 7e-6 + pairs * 1e-9)


def test_value_is_expected_seconds_per_slot() -> None:
    retention = Retention(COST)
    assert retention.value(0, 10, 0.5) == pytest.approx(0.05 * COST.seconds(0, 10))
    # Deeper and likelier is worth more; length matters through attention alone.
    assert retention.value(9_000, 10, 1.0) > retention.value(10, 10, 1.0)
    assert retention.value(10, 10, 0.2) < retention.value(10, 10, 0.3)
    linear = Retention(RecomputeCost(1.0, 0.0))
    assert linear.value(5, 1, 1.0) == linear.value(5, 900, 1.0)


def test_among_equals_the_newest_goes() -> None:
    retention = Retention(COST)
    for number in (3, 9, 5):
        retention.offer(number, 1.0)
    assert retention.least() == 9


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["offer", "withdraw", "take"]), st.integers(0, 6), st.integers(0, 4)
        ),
        max_size=300,
    )
)
def test_the_queue_is_a_dictionary_with_a_minimum(steps: list[tuple[str, int, int]]) -> None:
    retention, model = Retention(COST), dict[int, float]()
    for step, span, value in steps:
        if step == "offer":
            retention.offer(span, float(value))
            model[span] = float(value)
        elif step == "withdraw":
            retention.withdraw(span)
            model.pop(span, None)
        else:
            expected = min(model, key=lambda s: (model[s], -s)) if model else None
            assert retention.least() == expected
            if expected is not None:
                retention.withdraw(expected)
                del model[expected]
        assert [s in retention for s in range(7)] == [s in model for s in range(7)]
