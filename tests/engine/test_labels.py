"""Labels and their probabilities against brute force, whatever the method and the tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.engine import load
from covey.engine.base import Counters, PromptBatch
from covey.engine.loaded import LoadedEngine
from covey.models.files import ModelFiles
from covey.models.tokenizer import TextEncoder
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Label, Method, Question, QuestionKind
from models.tiny import make_model, plain_logits, write_folder

TEXTS = ["refund please", "", "the order is an answer and the customer waits", "é 日本 👋"]
PARTNERS = ["the order", "the", "a refund for the order"]


class BruteForce:
    """Scores labels from the logits of whole prompts by transformers, by the definition."""

    def __init__(self, theirs: Any, encoder: TextEncoder) -> None:
        self._theirs = theirs
        self._encoder = encoder
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    def _logits(self, ids: list[int]) -> torch.Tensor:
        found = self._known.get(tuple(ids))
        if found is None:
            found = self._known[tuple(ids)] = plain_logits(self._theirs, ids).double()
        return found

    def prompt(self, question: Question, texts: tuple[str, ...]) -> list[int]:
        ids: list[int] = []
        for part in RAW_V1.parts(question):
            ids += self._encoder.ids(part.text if part.document is None else texts[part.document])
        return ids

    def scores(self, question: Question, texts: tuple[str, ...]) -> np.ndarray:
        """(labels,): the log-probabilities, one label and one token at a time."""
        prompt = self.prompt(question, texts)
        end = self._encoder.ids("\n")[0]
        runs = [[*self._encoder.ids(text), end] for text in RAW_V1.answers(question)]
        found = []
        for run in runs:
            total = 0.0
            for place, token in enumerate(run):
                others = {other[place] for other in runs if other[:place] == run[:place]}
                if len(others) > 1:
                    logits = self._logits([*prompt, *run[:place]])
                    total += float(logits[token] - torch.logsumexp(logits[list(others)], 0))
            found.append(total)
        return np.array(found)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    theirs = make_model(request.param, tied=True)
    folder = write_folder(tmp_path_factory.mktemp(request.param), theirs)
    return BruteForce(theirs, ModelFiles(folder).encoder), load(folder)


def ask(
    engine: LoadedEngine, question: Question, rows: list[tuple[str, ...]], reads: float = 0.0
) -> tuple[np.ndarray, Counters]:
    documents = DocumentStore()
    ids = documents.add([text for row in rows for text in row]).reshape(len(rows), -1)
    scores = np.full((len(rows), question.width), np.nan)
    with engine.session(documents) as session:
        ticket = session.submit(PromptBatch(question, ids, reads))
        for answers in session.run():
            assert answers.ticket == ticket
            assert np.isnan(scores[answers.rows]).all(), "a row was delivered twice"
            scores[answers.rows] = answers.scores
    assert session.counters.prompts == len(rows)
    return scores, session.counters


def random_labels(seed: int, count: int) -> tuple[Label, ...]:
    """Shared first words, labels that open others, one token and many, several scripts."""
    rng = np.random.default_rng(seed)
    words = ["the", "order", "refund", "customer", "é", "日本", "TRUE", "a", "waits", "for"]
    found: dict[str, None] = {}
    while len(found) < count:
        if found and rng.random() < 0.6:
            start = list(found)[rng.integers(len(found))]
            text = start + rng.choice(["", " ", "-"]) + rng.choice(words)
        else:
            text = " ".join(rng.choice(words, rng.integers(1, 6)))
        if len(text) < 60:
            found[text] = None
    return tuple(Label(text, "a word" if rng.random() < 0.2 else None) for text in found)


def check_question(
    brute: BruteForce, engine: LoadedEngine, question: Question, rows: list[tuple[str, ...]]
) -> None:
    """Both exact methods give the brute-force labels, and `full` every probability."""
    expected = np.stack([brute.scores(question, row) for row in rows])
    np.testing.assert_allclose(np.exp(expected).sum(axis=1), 1.0, atol=1e-9)
    full, _ = ask(engine, replace(question, full=True), rows)
    np.testing.assert_allclose(full, expected, atol=1e-4)
    np.testing.assert_allclose(np.exp(full).sum(axis=1), 1.0, atol=1e-9)
    for method in (Method.TRIE, Method.STEPWISE, None):
        best, _ = ask(engine, replace(question, method=method), rows)
        chosen = best[:, 0].astype(int)
        at_best = expected[np.arange(len(rows)), chosen]
        np.testing.assert_allclose(best[:, 1], at_best, atol=1e-4)
        # Where two labels are closer than rounding either is right.
        np.testing.assert_allclose(at_best, expected.max(axis=1), atol=1e-4)


LIMITS = [(37, 9_000, 0), (64, 500, 0), (4096, 9_000, 8), (64, 60, 0)]


@pytest.mark.parametrize("seed, count", [(0, 2), (1, 3), (2, 12), (3, 24)])
def test_labels_and_probabilities_are_those_of_brute_force(
    tiny: Any, seed: int, count: int
) -> None:
    brute, engine = tiny
    budget, slots, node_tokens = LIMITS[seed]
    engine.limits = replace(engine.limits, budget=budget, slots=slots, node_tokens=node_tokens)
    labels = random_labels(seed, count)
    one = Question(QuestionKind.CLASSIFY, "What does {0} say?", 1, labels)
    check_question(brute, engine, one, [(text,) for text in TEXTS])
    pair = Question(QuestionKind.CLASSIFY, "How do {0} and {1} relate?", 2, labels, anchor=seed % 2)
    pairs = [(a, b) for a in TEXTS[:3] for b in PARTNERS]
    check_question(brute, engine, pair, pairs[: 9 - seed])
    check_question(brute, engine, Question(QuestionKind.CLASSIFY, "Which?", 0, labels), [()])
