"""What AI.CLASSIFY, AI.SCORE and AI.MARGIN give, form by form, on planted weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import covey
from covey.errors import QueryError
from covey.testing import PlantedModel

WEIGHTS = {
    "money": {"billing": 6.0, "refund": 3.0, "shipping": 1.0},
    "tie": {"billing": 1.0, "refund": 1.0, "shipping": 1.0},
    "either": {"billing": 0.9, "refund": 0.8, "shipping": 0.1},
    "nothing": {"billing": 0.2, "refund": 0.1, "shipping": 0.1},
}


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> list[float] | None:
    known = WEIGHTS.get(documents[0])
    return None if known is None else [known.get(text, 0.0) for text in labels]


def answer(question: str, documents: tuple[str, ...]) -> float:
    return {"money": 0.9, "tie": 0.5, "either": 0.7, "nothing": 0.2}[documents[0]]


@pytest.fixture
def model() -> PlantedModel:
    return PlantedModel(answer, label)


@pytest.fixture
def con(model: PlantedModel) -> Iterator[covey.Connection]:
    with covey.connect(model=model, progress=False) as connection:
        connection.duckdb.execute(
            "CREATE TABLE t (id INTEGER, body VARCHAR);"
            "INSERT INTO t VALUES"
            " (1, 'money'), (2, 'tie'), (3, NULL), (4, 'either'), (5, 'nothing');"
            "CREATE TABLE topics (name VARCHAR, meaning VARCHAR);"
            "INSERT INTO topics VALUES"
            " ('billing', 'money'), ('refund', NULL), ('shipping', 'parcels')"
        )
        yield connection


LABELS = "['billing', 'refund', 'shipping']"


def given(con: covey.Connection, options: str, labels: str = LABELS) -> list[object]:
    query = f"SELECT AI.CLASSIFY(body, {labels}{options}) FROM t ORDER BY id"
    return [value for (value,) in con.sql(query).fetchall()]


def test_one_label_and_lists_of_labels(con: covey.Connection) -> None:
    plain = given(con, "")
    assert plain == ["billing", "billing", None, "billing", "billing"]
    single = given(con, ", output_mode => 'single'")
    assert single == [None if text is None else [text] for text in plain]
    two = given(con, ", top_k => 2")
    assert two[:3] == [["billing", "refund"], ["billing", "refund"], None]
    assert given(con, ", top_k => 1") == single


def test_probabilities_are_a_map_best_first_that_sums_to_one(con: covey.Connection) -> None:
    found = given(con, ", probabilities => TRUE")
    assert found[2] is None
    assert list(found[0]) == ["billing", "refund", "shipping"]
    assert found[0] == pytest.approx({"billing": 0.6, "refund": 0.3, "shipping": 0.1})
    for each in found:
        assert each is None or math.isclose(sum(each.values()), 1.0)
    top = given(con, ", probabilities => TRUE, top_k => 1")
    assert top[0] == pytest.approx({"billing": 0.6})
    query = (
        f"SELECT AI.CLASSIFY(body, {LABELS}, probabilities => TRUE)['refund'] FROM t WHERE id = 1"
    )
    assert con.sql(query).fetchall() == [(pytest.approx(0.3),)]


def test_several_labels_each_asked_for_itself(con: covey.Connection) -> None:
    con.run("DELETE FROM t WHERE id < 3")
    multi = ", output_mode => 'multi'"
    assert given(con, multi) == [None, ["billing", "refund"], []]
    assert given(con, multi + ", threshold => 0.85") == [None, ["billing"], []]
    assert given(con, multi + ", threshold => 0.15") == [None, ["billing", "refund"], ["billing"]]
    none = given(con, multi + ", none_of_these => 'other'")
    assert none == [None, ["billing", "refund"], ["other"]]
    shares = given(con, multi + ", probabilities => TRUE")
    assert shares[1] == pytest.approx({"billing": 0.9, "refund": 0.8, "shipping": 0.1})


def test_a_threshold_gives_the_label_for_none(con: covey.Connection) -> None:
    found = given(con, ", threshold => 0.55, none_of_these => TRUE")
    assert found == ["billing", "none of these", None, "none of these", "none of these"]


@pytest.mark.parametrize(
    "labels", ["topics.name", "(SELECT name FROM topics)", "(FROM topics)", LABELS]
)
def test_labels_come_from_a_column_a_subquery_or_a_list(con: covey.Connection, labels: str) -> None:
    assert given(con, "", labels) == ["billing", "billing", None, "billing", "billing"]
    assert given(con, "", labels)[0] == given(con, "", f"{labels}").pop(0)


_OTHERS = "topics AS (SELECT unnest(['p', 'q']) AS name, 2 AS n)"


@pytest.mark.parametrize(
    "sql",
    [
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, (SELECT name FROM topics)) FROM t",
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, (SELECT list(name) FROM topics)) FROM t",
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, (FROM topics)) FROM t",
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, (SELECT name FROM t AS u, (topics))) FROM t",
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, topics.name) FROM t",
        f'WITH {_OTHERS} SELECT AI.CLASSIFY(body, "Topics".name) FROM t',
        f"WITH {_OTHERS} FROM (SELECT AI.CLASSIFY(body, topics.name) FROM t)",
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, ['a', 'b'], top_k => (SELECT max(n) FROM topics))"
        " FROM t",
        "SELECT AI.CLASSIFY(body, topics.name) FROM t, (SELECT unnest(['p', 'q']) AS name) topics",
        "SELECT AI.CLASSIFY(t.body, topics.body) FROM t JOIN t AS topics ON TRUE",
        "UPDATE t AS topics SET body = AI.CLASSIFY(body, topics.body)",
        "DELETE FROM t AS topics WHERE AI.CLASSIFY(body, topics.body) = 'a'",
        "SELECT (SELECT AI.CLASSIFY(t.body, topics.body)) FROM t JOIN t topics USING (id)",
    ],
)
def test_labels_never_come_from_a_table_of_the_same_name(con: covey.Connection, sql: str) -> None:
    with pytest.raises(QueryError, match="opics is defined by this query"):
        con.sql(sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"WITH {_OTHERS} SELECT AI.CLASSIFY(body, (SELECT name FROM main.topics)) FROM t",
        f"WITH u AS (SELECT AI.CLASSIFY(body, topics.name) FROM t), {_OTHERS} FROM u",
        "WITH u AS (SELECT AI.CLASSIFY(body, topics.name) FROM t) FROM u, (SELECT 1) topics",
        "SELECT AI.CLASSIFY(body, topics.name) FROM t UNION ALL SELECT 'x' FROM t AS topics",
        "SELECT AI.CLASSIFY(body, (SELECT name FROM topics)) FROM t, (SELECT 1) AS topics",
        "SELECT DISTINCT AI.CLASSIFY(body, topics.name) FROM t, topics",
        "SELECT AI.CLASSIFY(body, (SELECT name AS topics FROM topics)) AS topics FROM t",
    ],
)
def test_labels_come_from_the_table_that_their_name_means(con: covey.Connection, sql: str) -> None:
    assert con.sql(sql).fetchall()[0][0] == "billing"


def test_labels_of_a_with_clause_of_their_own(con: covey.Connection) -> None:
    own = "WITH topics AS (SELECT unnest(['shipping', 'refund', 'billing']) AS name)"
    assert given(con, "", f"({own} SELECT name FROM topics LIMIT 2)")[0] == "refund"


def test_labels_is_another_name_for_categories(con: covey.Connection) -> None:
    query = f"SELECT AI.CLASSIFY(body, labels => {LABELS}) FROM t WHERE id = 1"
    assert con.sql(query).fetchall() == [("billing",)]


def test_a_label_and_its_probabilities_are_one_computation(
    con: covey.Connection, model: PlantedModel
) -> None:
    query = (
        f"SELECT AI.CLASSIFY(body, {LABELS}), AI.CLASSIFY(body, {LABELS}, probabilities => TRUE),"
        f" AI.CLASSIFY(body, {LABELS}, top_k => 2) FROM t WHERE body IS NOT NULL"
    )
    rows = con.sql(query).fetchall()
    assert len(model.calls) == len(rows) == 4
    for best, shares, top in rows:
        assert best == next(iter(shares)) == top[0]


def test_score_margin_and_truth_are_one_computation(
    con: covey.Connection, model: PlantedModel
) -> None:
    asked = "PROMPT('Is it about money? {0}', body)"
    rows = con.sql(
        f"SELECT id, AI.SCORE({asked}) AS s, AI_MARGIN({asked}), AI.IF({asked}, threshold => 0.6)"
        f" FROM t WHERE AI.IF({asked}, threshold => 0.4) ORDER BY AI.SCORE({asked}) DESC LIMIT 3"
    ).fetchall()
    assert [(i, t) for i, _, _, t in rows] == [(1, True), (4, True), (2, False)]
    for _, score, margin, _ in rows:
        assert margin == pytest.approx(math.log(score) - math.log1p(-score))
    assert len(model.calls) == 4


def test_scores_join_and_rank(con: covey.Connection, model: PlantedModel) -> None:
    rows = con.sql(
        "SELECT t.id, p.name FROM t JOIN topics AS p"
        " ON AI.SCORE(PROMPT('Is {0} about {1}?', t.body, p.name)) >= 0.7 ORDER BY ALL"
    ).fetchall()
    assert rows == [(i, name) for i in (1, 4) for name in ("billing", "refund", "shipping")]
    assert len(model.calls) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (", threshold => 0.5", "needs a label for the rows that do not reach it"),
        (", output_mode => 'multi', top_k => 2", "top_k has no meaning"),
        (", output_mode => 'single', probabilities => TRUE", "gives one label"),
        (", output_mode => 'both'", "'single' or 'multi'"),
        (", top_k => 4", "from 1 to 3"),
        (", top_k => 0", "from 1 to 3"),
        (", method => 'guess'", "'trie', 'stepwise' or 'letters'"),
        (", method => 'stepwise', probabilities => TRUE", "finds the best label"),
        (", output_mode => 'multi', method => 'trie'", "one method only"),
        (", none_of_these => 'refund'", "given twice"),
        (", none_of_these => ' '", "blank"),
        (", calibration => 'labelled'", "is for AI.IF"),
        (", calibration => 'magic'", "'prior' or 'labelled'"),
        (", examples => []", "a list of inputs and answers"),
        (", examples => [{'input': 'x', 'label': 'other'}]", "none of the labels"),
        (", examples => [{'input': ['x', 'y'], 'label': 'refund'}]", "has 2 texts"),
        (", examples => [{'input': 'x', 'label': 'refund', 'why': 'y'}]", "no field why"),
    ],
)
def test_options_that_contradict_or_cannot_be_read_are_refused(
    con: covey.Connection, options: str, message: str
) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        con.sql(f"SELECT AI.CLASSIFY(body, {LABELS}{options}) FROM t")
    assert caught.value.span is not None and caught.value.hint


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("['a', 'a ']", "differ in blanks"),
        ("['\u00e9', 'e\u0301']", "differ in blanks or accents"),
        ("['a\nb', 'c']", "line break"),
        ("(SELECT i::VARCHAR FROM range(1001) AS r(i))", "at most 1,000 labels, not 1,001"),
        ("topics.meaning", "NULL is no text"),
        ("(SELECT 1, 2, 3)", "has 3 columns"),
    ],
)
def test_label_sets_are_refused_by_name(con: covey.Connection, labels: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        con.sql(f"SELECT AI.CLASSIFY(body, {labels}) FROM t")
    thousand = "(SELECT i::VARCHAR FROM range(1000) AS r(i))"
    assert con.sql(f"SELECT AI.CLASSIFY(body, {thousand}) FROM t").schema


def test_failed_rows_show_their_error_beside_lists_and_maps(con: covey.Connection) -> None:
    con.run("INSERT INTO t VALUES (0, 'unknown')")
    for options in (", top_k => 1", ", probabilities => TRUE", ", output_mode => 'multi'", ""):
        if "multi" in options:
            con.run("DELETE FROM t WHERE id = 1")
        found = given(con, f"{options}, on_error => 'value'")
        assert found[0] == {"value": None, "error": "the planted answer is None"}
        assert all(each["error"] is None for each in found[1:])
        assert given(con, options)[0] is None
        assert found[1]["value"] == given(con, options)[1]


def test_explain_says_how_labels_are_found(con: covey.Connection) -> None:
    def shown(options: str) -> str:
        return con.explain(f"SELECT AI.CLASSIFY(body, {LABELS}{options}) FROM t")

    assert "whichever takes fewer tokens" in shown("")
    assert "may differ from those of trie" in shown(", method => 'letters'")
    assert "all labels in one pass" in shown(", probabilities => TRUE")
    assert "one TRUE or FALSE for each of 3 labels" in shown(", output_mode => 'multi'")


def test_one_label_is_enough_where_it_is_asked_for_itself(con: covey.Connection) -> None:
    query = "SELECT AI.CLASSIFY(body, ['refund'], output_mode => 'multi') FROM t WHERE id > 2"
    assert con.sql(query).fetchall() == [(None,), (["refund"],), ([],)]
    assert given(con, ", none_of_these => 'other'", "['refund']")[3] == "refund"
    with pytest.raises(QueryError, match="needs two or more labels, not 1"):
        given(con, "", "['refund']")
    with pytest.raises(QueryError, match="needs a label, not 0"):
        given(con, ", output_mode => 'multi'", "[]::VARCHAR[]")
