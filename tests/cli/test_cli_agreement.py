"""Agreement with hand labels: figures worked out by hand, and by counting pairs."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covey.cli.agreement import agreement, figures


def test_figures_of_a_small_case_worked_out_by_hand() -> None:
    got = agreement(
        [True, True, True, False, False, False, False, False],
        [2.0, -1.0, 0.5, -3.0, 0.5, -1.0, 0.0, -0.5],
    )
    assert got.rows == 8
    assert got.positive == 3 / 8
    assert got.accuracy == 6 / 8
    assert got.majority == 5 / 8
    assert got.balanced == pytest.approx((2 / 3 + 4 / 5) / 2)
    # Of 15 pairs: 2.0 wins 5; -1.0 wins 1 and ties 1; 0.5 wins 4 and ties 1.
    assert got.auc == pytest.approx(11 / 15)


def test_a_margin_of_zero_is_false() -> None:
    assert agreement([True, True, False], [0.0, 0.0, 0.0]).accuracy == 1 / 3


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]))))
def test_auc_equals_the_count_over_all_pairs(rows: list[tuple[bool, float]]) -> None:
    labels = [label for label, _ in rows]
    assume(True in labels and False in labels)
    true = [m for label, m in rows if label]
    false = [m for label, m in rows if not label]
    wins = sum((t > f) + 0.5 * (t == f) for t in true for f in false)
    got = agreement(labels, [m for _, m in rows])
    assert got.auc == pytest.approx(wins / (len(true) * len(false)))


@pytest.mark.parametrize("label", [True, False])
def test_one_label_only_is_refused(label: bool) -> None:
    with pytest.raises(ValueError, match="both labels"):
        agreement([label, label], [1.0, -1.0])


def test_figures_leave_out_rows_that_lack_a_label_or_a_margin() -> None:
    labels, margins = [True, None, False, True, False], [1.0, 2.0, -1.0, None, math.nan]
    assert figures(labels, margins) == (2, "100%", "50%", "100%", "1.00")
    assert figures([True, True], [1.0, 2.0]) == (2, "not measured", "", "", "")
