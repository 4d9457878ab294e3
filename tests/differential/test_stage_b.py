"""Stage B against the oracle; see `differential.stage_b`."""

from __future__ import annotations

from hypothesis import given

from differential import stage_b
from differential.harness import Case, Pair, fuzz


@fuzz(0.08)
@given(case=stage_b.boolean_filters())
def test_conditions_in_where(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.06)
@given(case=stage_b.value_selects())
def test_values_in_the_select_list(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.06)
@given(case=stage_b.grouped_values())
def test_group_by_and_having(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.04)
@given(case=stage_b.ordered_selects())
def test_order_by_and_limit(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.04)
@given(case=stage_b.window_selects())
def test_windows_and_qualify(pair: Pair, case: Case) -> None:
    pair.check(case)
