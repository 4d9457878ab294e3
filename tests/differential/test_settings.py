"""Under whatever a user has set, rows are those of DuckDB under the same settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from covey.api.capabilities import SETTINGS, Capability
from differential import stage_b, stage_c, stage_c_blocks, stage_d
from differential.harness import Pair, fuzz
from differential.sources import Files
from differential.stage_a import grouped_selects, plain_selects

# Values of settings that could change what a statement means or gives.
VALUES: dict[str, list[str]] = {
    "default_order": ["'desc'"],
    "default_null_order": ["'nulls_first'", "'nulls_first_on_asc_last_on_desc'"],
    "default_collation": ["'NOCASE'", "'NOACCENT'", "'de'"],
    "timezone": ["'America/New_York'", "'Asia/Kathmandu'"],
    "search_path": ["'other'", "'other,main'"],
    "preserve_identifier_case": ["'uppercase'", "'lowercase'"],
    "threads": ["1", "4"],
    "memory_limit": ["'200MB'"],
    "disabled_optimizers": ["'filter_pushdown,statistics_propagation'", "'late_materialization'"],
    "pivot_limit": ["2"],
    "max_expression_depth": ["200"],
    "arrow_output_version": ["'1.4'"],
    "explain_output": ["'all'"],
    "enable_external_access": [],
    "nested_loop_join_threshold": ["0"],
    "merge_join_threshold": ["0"],
    "perfect_ht_threshold": ["0"],
    "ordered_aggregate_threshold": ["1"],
    "late_materialization_max_rows": ["0"],
    "pivot_filter_threshold": ["0"],
    "dynamic_or_filter_threshold": ["0"],
    "current_transaction_invalidation_policy": ["'ALL_ERRORS_INVALIDATE_TRANSACTION'"],
    "errors_as_json": ["false"],
}
# What prints, or needs another version.
LEFT_OUT = {"enable_progress_bar", "warnings_as_errors", "lock_configuration", "enable_profiling"}


def toggles() -> list[str]:
    """The harmless settings that are on or off."""
    with duckdb.connect() as fresh:
        rows = fresh.execute(
            "SELECT name FROM duckdb_settings() WHERE input_type = 'BOOLEAN' ORDER BY name ASC"
        ).fetchall()
    names = [name for (name,) in rows if SETTINGS.get(name.lower()) is Capability.HARMLESS]
    return [name for name in names if name not in LEFT_OUT]


@st.composite
def settings(draw: st.DrawFn) -> dict[str, str]:
    names = draw(st.lists(st.sampled_from([*VALUES, *toggles()]), min_size=1, max_size=6))
    values = {name: VALUES.get(name, ["true", "false"]) for name in names}
    return {name: draw(st.sampled_from(each)) for name, each in values.items() if each}


@contextmanager
def under(pair: Pair, chosen: dict[str, str]) -> Iterator[None]:
    connections = [pair._covey.duckdb, pair._oracle._connection]
    for name, value in chosen.items():
        note(f"SET {name} = {value};")
    try:
        for connection in connections:
            for name, value in chosen.items():
                connection.execute(f"SET {name} = {value}").fetchall()
        before = pair._covey.duckdb.execute("FROM duckdb_settings()").fetchall()
        yield
        assert pair._covey.duckdb.execute("FROM duckdb_settings()").fetchall() == before
    finally:
        for connection in connections:
            for name in chosen:
                # What was so before Covey or the oracle had the connection.
                kept = {"errors_as_json": "true", "threads": "1", "memory_limit": "'2GB'"}
                text = f"SET {name} = {kept[name]}" if name in kept else f"RESET {name}"
                connection.execute(text).fetchall()


@pytest.fixture(scope="module")
def pair() -> Pair:
    made = Pair()
    for connection in (made._covey.duckdb, made._oracle._connection):
        connection.execute("CREATE SCHEMA other; SET memory_limit = '2GB'").fetchall()
    return made


@fuzz(0.06)
@given(data=st.data(), chosen=settings())
def test_rows_are_duckdbs_under_any_settings(
    pair: Pair, files: Files, data: st.DataObject, chosen: dict[str, str]
) -> None:
    cases = [
        *(plain_selects(files), grouped_selects(files), stage_b.value_selects()),
        *(stage_b.ordered_selects(), stage_b.window_selects(), stage_b.boolean_filters()),
        *(stage_c.inner_joins(), stage_c.outer_joins(), stage_c.subqueries_in_where()),
        *(stage_c_blocks.shared_ctes(), stage_c_blocks.set_operations(), stage_d.star_selects()),
        *(stage_d.limited_blocks(), stage_c.joins_of_three()),
    ]
    case = data.draw(st.sampled_from(cases).flatmap(lambda each: each))
    with under(pair, chosen):
        pair.check(case)
