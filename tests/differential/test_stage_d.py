"""Stage D against the oracle; see `differential.stage_d`."""

from __future__ import annotations

from hypothesis import given

from differential import stage_d
from differential.harness import Case, Pair, fuzz


@fuzz(0.015)
@given(case=stage_d.alias_selects())
def test_alias_selects(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.star_selects())
def test_star_selects(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.unusual_joins())
def test_unusual_joins(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.group_shapes())
def test_group_shapes(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.nested_subqueries())
def test_nested_subqueries(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.blocks_in_blocks())
def test_blocks_in_blocks(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.limited_blocks())
def test_limited_blocks(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.015)
@given(case=stage_d.joins_beside_limits())
def test_joins_beside_limits(pair: Pair, case: Case) -> None:
    pair.check(case)
