"""Slices of a batch: every document once, cut where neighbours have little in common."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey.engine.session
from covey.arrays import Int32, Int64
from covey.engine.base import PromptBatch
from covey.engine.limits import Limits
from covey.engine.session import LocalSession
from covey.engine.slices import slices
from covey.prompts.documents import DocumentStore, common_beginning
from covey.prompts.question import Question, QuestionKind
from engine.plans import SPEC
from engine.symbolic import LAYOUT, CharEncoder, SymbolicRunner

openings = st.sampled_from(["", "a", "the same long opening of many documents ", "b " * 40])
documents = st.lists(st.builds(str.__add__, openings, st.text("xyz ", max_size=30)), max_size=60)


@given(documents, st.integers(1, 60))
def test_every_document_is_in_one_slice_and_alike_ones_in_the_same(
    texts: list[str], first_tokens: int
) -> None:
    found = slices(texts, first_tokens)
    assert sorted(i for part in found for i in part.tolist()) == list(range(len(texts)))
    for one, other in combinations(found, 2):
        for a in one.tolist():
            for b in other.tolist():
                assert common_beginning(texts[a], texts[b]) <= 16


def test_slices_double() -> None:
    texts = [f"{i * 7919 % 10000:04d} " + "word " * 99 for i in range(1000)]
    sizes = [len(part) for part in slices(texts, 1250)]
    assert sizes[0] in range(10, 21) and sum(sizes) == 1000 and len(sizes) in range(4, 9)
    assert all(later > earlier for earlier, later in pairwise(sizes[:-1]))


def test_documents_that_all_begin_alike_are_one_slice() -> None:
    texts = ["a log of the same machine, entry " + "x" * i for i in range(500)]
    assert [len(part) for part in slices(texts, 100)] == [500]


def test_a_sliced_batch_runs_while_its_end_is_not_tokenised_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last slice waits for the first batch to come back; answers and failures are whole."""
    monkeypatch.setattr(covey.engine.session, "SLICE_TOKENS", 40)
    texts = [f"{chr(97 + i % 26)}{i:03d} " + "word " * (i % 7 + 8) for i in range(80)]
    texts += ["z" * 900, "y\udcff"]
    answered = threading.Event()

    class Waiting(CharEncoder):
        def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
            if any(text.startswith("z") for text in texts):
                assert answered.wait(20), "nothing ran before the last slice was tokenised"
            return super().encode(texts)

    documents, runner = DocumentStore(), SymbolicRunner(4000)
    limits = Limits(context=600, max_batched_tokens=300, slots=4000)
    with LocalSession(documents, runner, SPEC, Waiting(), LAYOUT, limits, lambda: None) as session:
        ids = documents.add(texts)
        question = Question(QuestionKind.JUDGE, "Is it? {0}", 1)
        session.submit(PromptBatch(question, ids[:, None]))
        scores, errors = np.full(len(texts), np.inf), {}
        for answers in session.run():
            answered.set()
            scores[answers.rows] = answers.scores[:, 0]
            errors.update(answers.errors)
    assert not np.isinf(scores).any()
    assert sorted(errors) == [80, 81] and np.isnan(scores[80:]).all()
    assert "600" in errors[80] and "Unicode" in errors[81]
    assert not np.isnan(scores[:80]).any()
    assert session.counters.prompts == 82 and session.counters.failed == 2
