"""Estimates of a real model, where prompts or steps come on top of one prompt a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.engine.labels import build_tree
from covey.engine.local import LocalModel
from covey.engine.questions import QuestionTokens, column
from covey.estimate.figures import Range

BODIES = ["The lid broke.", "Thank you!", "Where is my order, please?", "My money back, now."]
PRIOR = "calibration => 'prior'"
LABELS = "['refund', 'refund request', 'refund status', 'shipping']"
PAIR = "PROMPT('Is {0} about {1}?', t.body, p.title)"
# Some, whose figures are known before they run, and some that depend on labels.
KNOWN = {
    "a judgement": f"SELECT AI.IF(PROMPT('Angry? {{0}}', body), {PRIOR}) FROM t",
    "a join": f"SELECT AI.IF({PAIR}, {PRIOR}) FROM t, p",
    "labels": f"SELECT AI.CLASSIFY(body, {LABELS}, method => 'trie', {PRIOR}) FROM t",
    "each label": f"SELECT AI.CLASSIFY(body, {LABELS}, output_mode => 'multi', {PRIOR}) FROM t",
}
OPEN = {
    "two judgements": f"SELECT AI.IF(PROMPT('Angry? {{0}}', body), {PRIOR}),"
    f" AI.IF(PROMPT('Does it ask for money? {{0}}', body), {PRIOR}) FROM t",
    "steps": f"SELECT AI.CLASSIFY(body, {LABELS}, method => 'stepwise') FROM t",
    "steps of a pair": f"SELECT AI.CLASSIFY({PAIR}, {LABELS}, method => 'stepwise') FROM t, p",
    "steps behind a prior": f"SELECT AI.CLASSIFY(body, {LABELS}, method => 'stepwise', {PRIOR})"
    " FROM t",
}


@pytest.fixture(scope="module")
def tables() -> Iterator[covey.Connection]:
    model = LocalModel("smollm2-135m", device="cpu")
    with covey.connect(model, progress=False, cache=False) as connection:
        connection.register("t", pa.table({"body": BODIES}))
        connection.register("p", pa.table({"title": ["returns", "late parcels"]}))
        yield connection


@pytest.mark.parametrize("name", KNOWN | OPEN)
def test_all_that_is_computed_was_expected(tables: covey.Connection, name: str) -> None:
    query = tables.sql((KNOWN | OPEN)[name])
    statement = json.loads(query.explain("json"))["statements"][0]["expected"]
    counters = query.report.counters
    assert statement["calls"]["expected"] == counters.prompts
    assert statement["requested"] == {
        bound: counters.requested_tokens for bound in ("low", "expected", "high")
    }
    fresh = Range(**statement["fresh"])
    assert fresh.low <= counters.fresh_tokens <= fresh.high
    assert (fresh.low == fresh.high) == (name in KNOWN)


def test_steps_are_those_on_the_way_to_a_label() -> None:
    # 0 parts at the first token, "1" below it at the second, "1 1" at the third.
    labels = [[1], [1, 1], [1, 1, 1], [2]]
    tree = build_tree(labels, 9, list("abcd"))
    literal = np.array([7, 7, 7], np.int32)
    nothing = literal[:0]
    asked = QuestionTokens(
        0, nothing, nothing, nothing, (literal, 1), column(tree.paths), tree, stepwise=True
    )
    found = asked.lengths()
    # Nodes: behind nothing, behind 1, behind 1 1; each reads the suffix of 3 again.
    ways = {(1,): [1], (1, 1): [1, 2], (1, 1, 1): [1, 2], (2,): []}
    tokens = [sum(3 + depth for depth in way) for way in ways.values()]
    assert found.steps == Range(0, sum(map(len, ways.values())) / 4, 2)
    assert found.step_tokens == Range(0, sum(tokens) / 4, 4 + 5)


@pytest.mark.parametrize(("sizes", "several"), list(product([1, 2], [False, True])))
def test_a_row_is_counted_as_the_prompts_that_it_is(sizes: int, several: bool) -> None:
    literal = np.zeros(5, np.int32)
    probes = column([np.zeros(sizes, np.int32)] * 3) if several else None
    asked = QuestionTokens(0, literal[:0], literal[:0], literal[:0], (literal,), probes)
    found = asked.lengths()
    assert (found.prompts, found.asked) == ((3, 3 * (5 + sizes)) if several else (1, 5))
