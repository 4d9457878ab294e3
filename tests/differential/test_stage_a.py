"""Stage A against the oracle; see `differential.stage_a`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from differential.harness import Pair, fuzz
from differential.sources import Files
from differential.stage_a import grouped_selects, plain_selects, selects_with_ctes


@fuzz(0.09)
@given(data=st.data())
def test_filters_in_where(pair: Pair, files: Files, data: st.DataObject) -> None:
    pair.check(data.draw(plain_selects(files)))


@fuzz(0.06)
@given(data=st.data())
def test_filters_below_group_by(pair: Pair, files: Files, data: st.DataObject) -> None:
    pair.check(data.draw(grouped_selects(files)))


@fuzz(0.04)
@given(data=st.data())
def test_filters_in_and_around_ctes(pair: Pair, files: Files, data: st.DataObject) -> None:
    pair.check(data.draw(selects_with_ctes(files)))
