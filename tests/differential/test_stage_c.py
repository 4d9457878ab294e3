"""Stage C against the oracle; see `differential.stage_c` and `differential.stage_c_blocks`."""

from __future__ import annotations

from hypothesis import given

from differential import stage_c, stage_c_blocks
from differential.harness import Case, Pair, fuzz


@fuzz(0.05)
@given(case=stage_c.inner_joins())
def test_inner_ai_joins(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.05)
@given(case=stage_c.outer_joins())
def test_outer_ai_joins(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.03)
@given(case=stage_c.semi_joins())
def test_semi_and_anti_ai_joins(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.03)
@given(case=stage_c.joins_of_three())
def test_ai_joins_of_three_tables(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.05)
@given(case=stage_c.subqueries_in_where())
def test_subqueries_in_where(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.02)
@given(case=stage_c.subqueries_in_select())
def test_subqueries_in_select(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_c_blocks.derived_tables())
def test_subqueries_in_from(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_c_blocks.shared_ctes())
def test_ctes_used_twice(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_c_blocks.set_operations())
def test_set_operations(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.005)
@given(case=stage_c_blocks.values_lists())
def test_values_lists(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_c_blocks.lateral_joins())
def test_lateral_joins(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_c_blocks.recursive_ctes())
def test_recursive_ctes(pair: Pair, case: Case) -> None:
    pair.check(case)
