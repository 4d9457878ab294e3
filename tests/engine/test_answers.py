"""Answers are those of a plain forward pass per prompt, whatever was shared, kept or lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.engine import load
from covey.engine.base import Counters, PromptBatch
from covey.engine.loaded import LoadedEngine
from covey.engine.readout import answer_tokens, margins
from covey.models.files import ModelFiles
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Question, QuestionKind
from effort import THOROUGH
from models.smollm2 import smollm2_path, transformers_smollm2
from models.tiny import make_model, plain_logits, write_folder

FILTER = Question(QuestionKind.JUDGE, "Does the customer ask for a refund? {0}", 1)
OTHER = Question(QuestionKind.JUDGE, "Does the customer wait? {0}", 1)
JOIN = Question(QuestionKind.JUDGE, "Does {0} mention {1}?", 2)

Batch = tuple[Question, list[tuple[int, ...]], float]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    theirs = make_model(request.param, tied=True)
    folder = write_folder(tmp_path_factory.mktemp(request.param), theirs)
    return Oracle(theirs, folder), load(folder)


class Oracle:
    """Margins by transformers, a prompt at a time."""

    def __init__(self, theirs: Any, folder: Path) -> None:
        self._theirs = theirs
        self.encoder = ModelFiles(folder).encoder
        self._answers = answer_tokens(self.encoder)
        self._known: dict[tuple[int, ...], float] = {}

    def margin(self, question: Question, texts: list[str]) -> float:
        ids: list[int] = []
        for part in RAW_V1.parts(question):
            ids += self.encoder.ids(part.text if part.document is None else texts[part.document])
        found = self._known.get(tuple(ids))
        if found is None:
            rows = list(self._answers.true + self._answers.false)
            logits = plain_logits(self._theirs, ids)[rows]
            found = float(margins(logits[None], len(self._answers.true)))
            self._known[tuple(ids)] = found
        return found


def corpus(seed: int) -> list[str]:
    """Nested documents, shared openings, one token, none, and partners in six levels."""
    rng = np.random.default_rng(seed)
    words = "the customer asks for a refund of order and waits TRUE FALSE again".split()
    texts = ["", "z", "é", "the"]
    while len(texts) < 14:
        stem = texts[rng.integers(len(texts))]
        texts.append(stem + " " + " ".join(rng.choice(words, rng.integers(1, 25))))
    partner = "the"
    for level in range(6):
        texts += [partner, partner + f" {words[level]}x"]
        partner += " " + words[level + 1]
    return texts


def batches(seed: int, count: int) -> list[Batch]:
    """Filters and joins over one pool of documents, all and chosen pairs, some to be read."""
    rng = np.random.default_rng(seed)
    found: list[Batch] = []
    for number in range(count):
        left = sorted(rng.choice(14, rng.integers(2, 14), replace=False).tolist())
        right = sorted(rng.choice(np.arange(14, 26), rng.integers(1, 12), replace=False).tolist())
        kind = number % 4
        if kind < 2:
            rows = [(i,) for i in left]
        else:
            rows = [(i, j) for i in left for j in right if kind == 2 or rng.random() < 0.4]
        question = (FILTER, OTHER, JOIN, replace(JOIN, anchor=1))[kind]
        found.append((question, rows, float(rng.integers(0, 2))))
    return [found[i] for i in rng.permutation(count)]


def ask(
    engine: LoadedEngine, texts: list[str], work: list[Batch], *, together: bool
) -> tuple[list[np.ndarray], Counters]:
    """Submit batches at once, or each when the one before is through."""
    documents = DocumentStore()
    ids = documents.add(texts)
    scores = [np.full(len(rows), np.nan) for _, rows, _ in work]

    def submissions() -> Iterator[None]:
        for question, rows, reads in work:
            pairs = np.array(rows, dtype=np.int64).reshape(len(rows), question.arity)
            session.submit(PromptBatch(question, ids[pairs], reads))
            if not together:
                yield
        if together:
            yield

    with engine.session(documents) as session:
        for _ in submissions():
            for answers in session.run():
                assert np.isnan(scores[answers.ticket][answers.rows]).all()
                scores[answers.ticket][answers.rows] = answers.scores[:, 0]
    return scores, session.counters


LIMITS = [(37, 9_000, 0), (64, 420, 0), (200, 260, 8), (4096, 9_000, 8), (64, 60, 0)]
# Each with one of the seeds, and in `make fuzz` with both; batches of five tokens are slow.
CASES = [(0, 5, 420, 0)] + [
    (seed, *limits)
    for place, limits in enumerate(LIMITS)
    for seed in range(2)
    if THOROUGH or seed == place % 2
]


@pytest.mark.fuzz
@pytest.mark.parametrize("seed, budget, slots, node_tokens", CASES)
def test_random_forests_warm_cold_and_evicted_agree_with_transformers(
    model: Any, seed: int, budget: int, slots: int, node_tokens: int
) -> None:
    oracle, engine = model
    texts, work = corpus(seed), batches(seed, 8)
    engine.limits = replace(
        engine.limits,
        max_batched_tokens=budget,
        slots=slots,
        node_tokens=node_tokens,
        in_flight=1 + seed % 2,
    )
    for together in (True, False):
        scores, counters = ask(engine, texts, work, together=together)
        for (question, rows, _), found in zip(work, scores, strict=True):
            expected = [oracle.margin(question, [texts[i] for i in row]) for row in rows]
            np.testing.assert_allclose(found, expected, atol=1e-4)
        assert counters.fresh_tokens >= counters.minimum_tokens
        assert counters.peak_slots <= slots
        assert counters.prompts == sum(len(rows) for _, rows, _ in work)


def test_order_of_tickets_changes_cost_only(model: Any) -> None:
    _, engine = model
    texts, work = corpus(5), batches(5, 6)
    engine.limits = replace(engine.limits, max_batched_tokens=50, slots=500, node_tokens=0)
    forward, _ = ask(engine, texts, work, together=True)
    backward, _ = ask(engine, texts, work[::-1], together=False)
    for one, other in zip(forward, backward[::-1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_smollm2_filter_filter_join_equals_one_prompt_at_a_time() -> None:
    oracle = Oracle(transformers_smollm2(), smollm2_path())
    engine = load("smollm2-135m")
    assert isinstance(engine, LoadedEngine)
    texts = [
        "The kettle arrived broken and I want my money back.",
        "The kettle arrived broken and nobody answers my mails.",
        "Thank you for the quick delivery.",
        "refunds",
        "damaged goods",
        "damaged parcels",
    ]
    three = [(0,), (1,), (2,)]
    work = [
        (FILTER, three, 2.0),
        (OTHER, three[:2], 1.0),
        (JOIN, [(i, j) for i in (0, 1) for j in (3, 4, 5)], 0.0),
    ]
    engine.limits = replace(engine.limits, max_batched_tokens=64, node_tokens=0)
    scores, counters = ask(engine, texts, work, together=False)
    for (question, rows, _), found in zip(work, scores, strict=True):
        expected = [oracle.margin(question, [texts[i] for i in row]) for row in rows]
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert counters.fresh_tokens == counters.minimum_tokens
