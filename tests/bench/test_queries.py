"""All 50 queries through Covey give the rows that DuckDB gives for the planted truth."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import covey
from bench.corpora import corpus
from covey.errors import InputError
from covey.prompts.documents import DocumentStore
from suite.check import reference_rows, same_rows
from suite.oracle import DocumentRows, Oracle
from suite.plan import Join
from suite.predicates import PREDICATES
from suite.queries import QUERIES
from suite.run import corpus_of
from suite.sql import to_sql
from suite.tables import DEFAULT_SEED
from suite.truth import plant
from suite.work import stages

# One or two of each shape, at the size at which something is left of every join; the others
# at the smoke size. `covey bench suite run --check` compares all at any size.
_LARGER = (
    "IMDB-4 IMDB-8 IMDB-15 BIO-3 BIO-6 FEV-7 FEV-9 FEV-10 FEV-11 LEP-5 LEP-6 AGENT-4"
    " REL-AGENT-1 REL-AGENT-2 REL-AGENT-4 REL-AGENT-6 REL-AGENT-7"
).split()


@cache
def oracle(scale: float = 0.01) -> Oracle:
    made = corpus_of(scale, DEFAULT_SEED)
    return Oracle(made, plant(made))


def test_there_are_fifty() -> None:
    families = [plan.dataset for plan in QUERIES.values()]
    counts = {name: families.count(name) for name in dict.fromkeys(families)}
    assert counts == {"IMDB": 15, "BIO": 6, "FEV": 11, "LEP": 6, "AGENT": 5, "REL-AGENT": 7}


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_duckdbs(query: str) -> None:
    plan, asked = QUERIES[query], oracle(0.01 if query in _LARGER else 0.0)
    tables = asked.corpus.tables
    with covey.connect(asked.planted_model(), progress=False, cache=False) as connection:
        for name in {scan.table for scan in plan.scans}:
            connection.register(name, tables[name])
        rows = connection.sql(to_sql(plan)).arrow()
    expected = reference_rows(plan, asked, tables)
    assert same_rows(rows, expected, plan), (rows.num_rows, expected.num_rows)
    assert len(rows) > 0 or query not in _LARGER


def test_the_comparison_sees_a_row_that_differs() -> None:
    plan = QUERIES["IMDB-11"]
    rows = reference_rows(plan, oracle(0.0), oracle(0.0).corpus.tables)
    labels = rows["sentiment"].to_pylist()
    labels[0] = "neutral" if labels[0] != "neutral" else "mixed"
    changed = rows.set_column(1, "sentiment", pa.array(labels))
    assert not same_rows(rows, changed, plan) and same_rows(rows, rows, plan)
    assert not same_rows(rows, rows.slice(1), plan)


def test_pairs_evaluated_are_the_published_ones() -> None:
    made = corpus(0.1)
    truth = plant(made, "measured")
    pairs = {
        "IMDB-2": 60_000,
        "IMDB-9": 151_788,
        "IMDB-10": 144_348,
        "BIO-3": 308_798,
        "FEV-7": 268_919,
        "FEV-8": 423_899,
        "FEV-9": 182_115,
        "FEV-10": 185,
        "LEP-2": 216_500,
    }
    for query, count in pairs.items():
        found = stages(QUERIES[query], made, truth)
        assert sum(s.prompts for s in found if s.partners is not None) == count, query


def test_every_join_adds_one_relation() -> None:
    for plan in QUERIES.values():
        joins = [step for step in plan.steps if isinstance(step, Join)]
        assert len(joins) == len(plan.scans) - 1
        for number, join in enumerate(joins, 1):
            seen = {scan.alias for scan in plan.scans[:number]}
            assert len(set(join.aliases) - seen) == 1, plan.id


def test_texts_of_other_tables_are_refused() -> None:
    with pytest.raises(InputError, match="the tables are not"):
        oracle().rows(("claims", "claim"), ["never made"])
    with pytest.raises(InputError, match="plants no answer"):
        oracle().predicate("Is it blue? {0}")


def test_planted_scores_are_those_of_the_rows() -> None:
    truth = oracle().truth
    documents = DocumentStore()
    predicate = PREDICATES["SUPPORT"]
    claims = corpus(0.01).tables["claims"]["claim"]
    pages = corpus(0.01).tables["evidence"]["text"]
    left, right = documents.add(claims), documents.add(pages)
    ids = np.stack(np.meshgrid(left, right, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = DocumentRows(oracle(), documents).of(predicate.template, ids)
    scores = oracle().scores(predicate.question, rows)
    assert ((scores[:, 0] > 0) == truth.judged["SUPPORT"].ravel()).all()
