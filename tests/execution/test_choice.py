"""Decisions while a query runs: sampled once, recorded, the same every time, answers unchanged."""

from __future__ import annotations

import zlib
from collections import Counter

import pyarrow as pa
import pytest

import covey
from covey.execution.ordering import facts
from covey.execution.report import Report
from covey.testing import PlantedModel

# Long enough that it matters which question comes first.
LONG = ", by all that its author says of it and leaves out" * 4
RATES = {"A": 0.9, "B": 0.05, "C": 0.06, "D": 0.95, "E": 0.5, "H": 0.5, "J": 0.1}


def judged(question: str, documents: tuple[str, ...]) -> float:
    chance = zlib.crc32((question[0] + "|".join(documents)).encode()) % 1000 / 1000
    return 0.9 if chance < RATES[question[0]] else 0.1


def asked(name: str, columns: str, given: float | None = None) -> str:
    holes = " ".join(f"{{{i}}}" for i in range(columns.count(",") + 1))
    option = "" if given is None else f", selectivity => {given}"
    return f"AI.IF(PROMPT('{name}{LONG}? {holes}', {columns}){option})"


def run(query: str, rows: int = 600) -> tuple[list[tuple[object, ...]], PlantedModel, Report]:
    model = PlantedModel(judged)
    with covey.connect(model=model, progress=False, cache=False) as con:
        texts = [f"{i} " + "word " * (20 + i % 40) for i in range(rows)]
        con.register("t", pa.table({"id": list(range(rows)), "s": texts}))
        con.register("p", pa.table({"id": list(range(8)), "s": [f"p {i}" for i in range(8)]}))
        result = con.run(query)
        return result.fetchall(), model, result.report


BOTH = f"SELECT id FROM t WHERE {asked('A', 't.s')} AND {asked('B', 't.s')}"


def test_a_sample_shows_what_to_ask_first_and_its_answers_are_kept():
    rows, model, report = run(BOTH)
    calls = Counter(question[0] for question, _ in model.calls)
    assert len(set(model.calls)) == len(model.calls), "a sampled prompt is asked again"
    assert calls["B"] == 600 and calls["A"] < 120
    assert [d.kind for d in report.decisions] == ["order", "sample"]
    last = report.decisions[-1]
    assert [condition[14] for condition in last.order] == ["B", "A"]
    assert [condition[14] for condition in last.before] == ["A", "B"]
    assert last.seconds_before is not None and last.seconds < last.seconds_before
    assert {rate.source for rate in last.rates} == {"sampled"}
    for rate in last.rates:
        assert rate.low <= rate.expected <= rate.high and rate.seen >= 12
    assert {row[0] for row in rows} == {
        i for i in range(600) if i in {int(d[0].split()[0]) for q, d in model.calls if q[0] == "A"
                                       and judged(q, d) > 0.5 and judged("B", d) > 0.5}
    }  # fmt: skip


def test_every_run_decides_alike():
    one, other = run(BOTH), run(BOTH)
    assert one[1].calls == other[1].calls
    assert one[2].decisions == other[2].decisions


@pytest.mark.parametrize("join", [False, True])
def test_wrong_words_are_overruled(join: bool):
    pair = f" AND {asked('J', 't.s, p.s', 0.9)}" if join else ""
    source = "t, p" if join else "t"
    query = (
        f"SELECT t.id FROM {source} WHERE {asked('A', 't.s', 0.05)} "
        f"AND {asked('B', 't.s', 0.9)}{pair}"
    )
    _, model, report = run(query)
    assert report.decisions[0].order[0][14] == "A"
    assert report.decisions[-1].kind in ("sample", "change")
    calls = Counter(question[0] for question, _ in model.calls)
    assert calls["A"] < 300


def test_a_limit_neither_samples_nor_tries():
    rows, model, report = run(f"{BOTH} LIMIT 1")
    assert len(rows) == 1
    assert all(decision.kind != "sample" for decision in report.decisions)
    assert len(model.calls) < 300


def test_a_single_condition_has_nothing_to_decide():
    _, model, report = run(f"SELECT id FROM t WHERE {asked('A', 't.s')}")
    assert report.decisions == [] and len(model.calls) == 600


def test_matches_of_large_tables_are_estimated_from_some_rows(monkeypatch: pytest.MonkeyPatch):
    query = (
        f"SELECT t.id FROM t JOIN p ON t.id % 8 = p.id "
        f"WHERE {asked('A', 't.s')} AND {asked('J', 't.s, p.s')}"
    )
    rows, _, exact = run(query)
    monkeypatch.setattr(facts, "COUNTED", 2000)
    again, _, estimated = run(query)
    assert again == rows
    assert estimated.decisions[0].seconds == pytest.approx(exact.decisions[0].seconds, rel=0.05)


def test_conditions_of_several_calls_are_sampled_by_demand():
    either = f"({asked('B', 't.s')} OR {asked('C', 't.s')})"
    rows, model, report = run(f"SELECT id FROM t WHERE {asked('A', 't.s')} AND {either}")
    assert len(set(model.calls)) == len(model.calls)
    assert [d.kind for d in report.decisions] == ["order", "sample"]
    assert {rate.source for rate in report.decisions[-1].rates} == {"sampled"}
    first = [[condition[14] for condition in d.order] for d in report.decisions]
    assert first == [["A", "B"], ["B", "A"]]
    calls = Counter(question[0] for question, _ in model.calls)
    assert calls["B"] == 600 and calls["A"] < 180
    # C is asked where B is not TRUE, in the sample too.
    doubted = {d for q, d in model.calls if q[0] == "B" and judged(q, d) < 0.5}
    assert {d for q, d in model.calls if q[0] == "C"} == doubted
    texts = {d[0] for q, d in model.calls if q[0] in "BC" and judged(q, d) > 0.5}
    true = {d[0] for q, d in model.calls if q[0] == "A" and judged(q, d) > 0.5}
    assert {row[0] for row in rows} == {int(text.split()[0]) for text in texts & true}


def test_a_call_that_is_seldom_needed_costs_little():
    neither = f"NOT ({asked('D', 't.s')} OR {asked('E', 't.s')})"
    _, model, report = run(f"SELECT id FROM t WHERE {asked('H', 't.s')} AND {neither}")
    # Asked in full, two calls would cost more than H saves them; but E decides one row in 20.
    assert [condition[14] for condition in report.decisions[-1].order] == ["D", "H"]
    calls = Counter(question[0] for question, _ in model.calls)
    assert calls["D"] == 600 and calls["E"] < 80 and calls["H"] < 120
