"""No prompt is asked whose answer cannot matter; see `differential.demand`."""

from __future__ import annotations

from hypothesis import given

from differential.demand import candidate_pairs, decided_rows
from differential.harness import Case, Pair, fuzz


@fuzz(0.05)
@given(case=decided_rows())
def test_decided_rows_are_not_asked(pair: Pair, case: Case) -> None:
    pair.check(case)


@fuzz(0.05)
@given(case=candidate_pairs())
def test_only_candidate_pairs_are_asked(pair: Pair, case: Case) -> None:
    pair.check(case)
