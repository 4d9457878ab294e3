"""The benchmark's plans are read, and a plan gives the rows that the query gives."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import covey
from bench.plan_writer import write_plan
from covey.errors import InputError
from suite.check import reference_rows, same_rows
from suite.oracle import Oracle
from suite.plan import Filter, Join, Plan, Scan, Step, Tail
from suite.quail_b.adapter import entry_point, plan_values, run_plan, with_anchors
from suite.quail_b.noted import NotedModel
from suite.quail_b.substrait import read_plan
from suite.queries import QUERIES
from suite.run import corpus_of
from suite.tables import DEFAULT_SEED
from suite.truth import plant


@cache
def oracle() -> Oracle:
    made = corpus_of(0.0, DEFAULT_SEED)
    return Oracle(made, plant(made))


def columns() -> dict[str, tuple[str, ...]]:
    return {name: tuple(table.column_names) for name, table in oracle().corpus.tables.items()}


def written(query: str) -> dict[str, Any]:
    return write_plan(QUERIES[query], columns())


def plain(step: Step) -> str:
    """A step without what plans do not carry: names, anchors and estimates."""
    asked = getattr(step, "predicate", None)
    if asked is None:
        return repr(step)
    bare = replace(asked, name="", anchor=0, selectivity=None)
    return repr(replace(step, predicate=bare))  # type: ignore[call-arg]


@pytest.mark.parametrize("query", QUERIES)
def test_every_plan_is_read_as_it_was_written(query: str) -> None:
    plan, read = QUERIES[query], read_plan(json.dumps(written(query)), query)
    assert (read.scans, read.outputs, read.tail) == (plan.scans, plan.outputs, plan.tail)
    assert sorted(map(plain, read.steps)) == sorted(map(plain, plan.steps))
    joins = [[plain(s) for s in each.steps if isinstance(s, Join)] for each in (read, plan)]
    assert joins[0] == joins[1]


def camel(value: Any) -> Any:
    """Keys as protocol buffers write them by default."""
    if isinstance(value, dict):
        return {_camel(k): camel(v) for k, v in value.items()}
    return [camel(each) for each in value] if isinstance(value, list) else value


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.title() for word in rest)


def test_both_spellings_of_keys_are_read() -> None:
    values = camel(written("REL-AGENT-5"))
    assert "extensionUrns" in values
    assert read_plan(values, "x").tail == QUERIES["REL-AGENT-5"].tail


@pytest.mark.parametrize(
    "query", ["IMDB-9", "IMDB-15", "BIO-4", "FEV-10", "REL-AGENT-1", "REL-AGENT-2", "REL-AGENT-6"]
)
def test_a_plan_gives_the_querys_rows(query: str) -> None:
    tables = oracle().corpus.tables
    with covey.connect(oracle().planted_model(), progress=False, cache=False) as connection:
        ran = run_plan(connection, query, written(query), tables)
    expected = reference_rows(QUERIES[query], oracle(), tables)
    assert same_rows(ran.rows, expected, QUERIES[query])
    assert ran.measurements["counters"]["prompts"] > 0 and ran.seconds > 0


def test_the_longer_document_is_the_anchor() -> None:
    plan = read_plan(written("FEV-2"), "FEV-2")
    (join,) = with_anchors(plan, oracle().corpus.tables).steps
    assert join.aliases == ("c", "e") and join.predicate.anchor == 1  # the page, not the claim


def test_what_is_not_read_is_named() -> None:
    values = written("IMDB-2")
    values["relations"][0]["root"]["input"]["project"]["input"]["join"]["type"] = "JOIN_TYPE_LEFT"
    with pytest.raises(InputError, match="IMDB-2 has a join that is not inner"):
        read_plan(values, "IMDB-2")
    with pytest.raises(InputError, match="relation 'cross': not supported"):
        root = {"input": {"project": {"input": {"cross": {}}, "expressions": []}}}
        read_plan({"relations": [{"root": root}]}, "x")
    with pytest.raises(InputError, match="cannot be read"):
        read_plan("{}", "x")


@dataclass
class RunOutput:
    """The fields of the benchmark's own class that the adapter fills."""

    filter_answers: dict[str, pa.Table]
    join_answers: dict[str, pa.Table]
    rows: pa.Table
    runtime_s: float
    measurements: dict[str, Any]
    classify_answers: dict[str, pa.Table] | None = None


def implied_rows(output: RunOutput, plan: Plan) -> int:
    """Rows that the answers imply, by DuckDB: what the harness compares with the result."""
    connection = duckdb.connect()
    for name, table in oracle().corpus.tables.items():
        connection.register(name, table)
    conditions = []
    numbers = {"filter": 0, "join": 0}
    for step in plan.steps:
        kind = "filter" if isinstance(step, Filter) else "join"
        numbers[kind] += 1
        name = f"{kind}-{numbers[kind]}"
        answers = output.filter_answers if kind == "filter" else output.join_answers
        connection.register(name, answers[name])
        aliases = (step.alias,) if isinstance(step, Filter) else step.aliases
        same = " AND ".join(f'n."{alias}" = {alias}.id' for alias in aliases)
        conditions.append(f'EXISTS (SELECT 1 FROM "{name}" AS n WHERE n.answer AND {same})')
        if isinstance(step, Join) and step.equal:
            conditions.append(" = ".join(step.equal))
    sources = ", ".join(f"{scan.table} AS {scan.alias}" for scan in plan.scans)
    found = connection.sql(f"SELECT count(*) FROM {sources} WHERE {' AND '.join(conditions)}")
    return int(found.fetchall()[0][0])


def test_the_entry_point_gives_the_harness_what_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="quail_b"):
        entry_point(oracle().planted_model())
    package, scoring = types.ModuleType("quail_b"), types.ModuleType("quail_b.scoring")
    package.__spec__ = types.SimpleNamespace(name="quail_b")  # type: ignore[assignment]
    scoring.RunOutput = RunOutput  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "quail_b", package)
    monkeypatch.setitem(sys.modules, "quail_b.scoring", scoring)
    run_query = entry_point(oracle().planted_model())
    for query in ("IMDB-3", "LEP-4", "IMDB-9", "FEV-10"):
        plan = json.dumps(written(query)).encode()
        spec = types.SimpleNamespace(id=query, plan=plan)
        output = run_query(spec, oracle().corpus.tables)
        assert output.rows.column_names == list(QUERIES[query].outputs)
        expected = reference_rows(QUERIES[query], oracle(), oracle().corpus.tables)
        assert same_rows(output.rows, expected, QUERIES[query]) and output.runtime_s > 0
        assert implied_rows(output, QUERIES[query]) == len(output.rows)
        assert {"fresh_tokens", "input_tokens"} <= output.measurements.keys()
    assert plan_values({"relations": []}) == {"relations": []}


def test_labels_are_given_by_operator() -> None:
    noted = NotedModel(oracle().planted_model())
    tables = oracle().corpus.tables
    with covey.connect(noted, progress=False, cache=False) as connection:
        ran = run_plan(connection, "IMDB-15", written("IMDB-15"), tables)
    answers = noted.notes.tables(ran.plan, tables)
    assert {kind: list(own) for kind, own in answers.items()} == {
        "filter": [],
        "join": ["join-1"],
        "classify": ["classify-1", "classify-2"],
    }
    sentiment, pairs = answers["classify"].values()
    assert sentiment.column_names == ["r", "label"] and len(sentiment) == len(tables["reviews"])
    given = dict(zip(sentiment["r"].to_pylist(), sentiment["label"].to_pylist(), strict=True))
    assert all(given[row["r"]] == row["sentiment"] for row in ran.rows.to_pylist())
    assert pairs.column_names == ["r", "a", "label"] and len(pairs) == len(ran.rows)


def test_a_plan_without_joins_needs_one_relation() -> None:
    plan = Plan("x", (Scan("r", "reviews"),), (), ("r",), Tail())
    assert read_plan(write_plan(plan, columns()), "x") == plan
