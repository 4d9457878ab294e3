"""A whole engine on a small random model: answers, failures, counters, life and death."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.engine import load
from covey.engine.base import Answers, Engine, OutOfMemory, PromptBatch
from covey.engine.loaded import LEAST_BATCHED_TOKENS, LEAST_SLOTS, LoadedEngine
from covey.engine.readout import answer_tokens, margins
from covey.errors import InputError, RunError
from covey.models.files import ModelFiles
from covey.models.tokenizer import TextEncoder
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Question, QuestionKind
from models.tiny import make_model, plain_logits, write_folder

REFUND = Question(QuestionKind.JUDGE, "Does the customer ask for a refund? {0}", 1)
RUDE = Question(QuestionKind.JUDGE, "Is {0} rude?", 1)
MENTIONS = Question(QuestionKind.JUDGE, "Does {0} mention {1}?", 2)
CONTEXT = 200


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A transformers model, and the folder that Covey loads it from."""
    theirs = make_model(request.param, tied=True, max_position_embeddings=CONTEXT)
    return theirs, write_folder(tmp_path_factory.mktemp(request.param), theirs)


@pytest.fixture
def engine(model: Any) -> Engine:
    return load(model[1])


def expected_margin(model: Any, question: Question, *documents: str) -> float:
    """The margin by transformers, over the prompt put together part by part."""
    theirs, folder = model
    encoder: TextEncoder = ModelFiles(folder).encoder
    ids: list[int] = []
    for part in RAW_V1.parts(question):
        ids += encoder.ids(part.text if part.document is None else documents[part.document])
    answers = answer_tokens(encoder)
    logits = plain_logits(theirs, ids)[list(answers.true + answers.false)]
    return float(margins(logits[None], len(answers.true)))


def scores_by_row(found: list[Answers], ticket: int, count: int) -> np.ndarray:
    scores = np.full(count, np.inf)
    for answers in found:
        if answers.ticket == ticket:
            assert np.isinf(scores[answers.rows]).all(), "a row was delivered twice"
            scores[answers.rows] = answers.scores[:, 0]
    assert not np.isinf(scores).any(), "a row was not delivered"
    return scores


TEXTS = ["refund please", "", "   ", "the order is an answer", "refund please now", "é 日本 👋"]


def test_filter_answers_are_the_margins_of_transformers(model: Any, engine: Engine) -> None:
    documents = DocumentStore()
    ids = documents.add(TEXTS)
    with engine.session(documents) as session:
        ticket = session.submit(PromptBatch(REFUND, ids[:, None]))
        scores = scores_by_row(list(session.run()), ticket, len(TEXTS))
    expected = [expected_margin(model, REFUND, text) for text in TEXTS]
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_join_two_filters_and_a_plain_question_run_together(model: Any, engine: Engine) -> None:
    documents = DocumentStore()
    left, right = documents.add(TEXTS), documents.add(["the plot", "the order", "the"])
    pairs = np.stack([np.repeat(left, 3), np.tile(right, len(left))], axis=1)
    swapped = Question(QuestionKind.JUDGE, MENTIONS.template, 2, anchor=1)
    alone = Question(QuestionKind.JUDGE, "Is water wet?", 0)
    batches = [
        PromptBatch(MENTIONS, pairs),
        PromptBatch(RUDE, left[:, None]),
        PromptBatch(swapped, pairs),
        PromptBatch(alone, np.empty((1, 0), dtype=np.int64)),
    ]
    with engine.session(documents) as session:
        tickets = [session.submit(batch) for batch in batches]
        found = list(session.run())
        counters = session.counters
    for ticket, batch in zip(tickets, batches, strict=True):
        scores = scores_by_row(found, ticket, len(batch.documents))
        for score, row in zip(scores, batch.documents, strict=True):
            expected = expected_margin(model, batch.question, *documents.texts(row))
            assert abs(score - expected) < 1e-4
    assert counters.prompts == sum(len(b.documents) for b in batches)
    assert counters.minimum_tokens <= counters.fresh_tokens < counters.requested_tokens


def test_a_prompt_past_the_context_fails_alone_with_both_numbers(
    model: Any, engine: Engine
) -> None:
    documents = DocumentStore()
    ids = documents.add(["short", "long " * 300, "bad \ud800", "fine"])
    with engine.session(documents) as session:
        ticket = session.submit(PromptBatch(REFUND, ids[:, None]))
        found = list(session.run())
        scores = scores_by_row(found, ticket, 4)
        assert np.isnan(scores).tolist() == [False, True, True, False]
        errors = {row: reason for answers in found for row, reason in answers.errors.items()}
        length = len(ModelFiles(model[1]).encoder.ids("long " * 300))
        assert f"{CONTEXT} is the model's limit" in errors[1]
        assert int(errors[1].split("is ")[1].split(" tokens")[0].replace(",", "")) > length
        assert "not valid Unicode" in errors[2]
        assert (session.counters.prompts, session.counters.failed) == (4, 2)


def test_the_longest_prompt_that_fits_is_answered(model: Any, engine: Engine) -> None:
    encoder = ModelFiles(model[1]).encoder
    fixed = sum(len(encoder.ids(p.text)) for p in RAW_V1.parts(REFUND))
    text = ""
    while len(encoder.ids(text + "z")) <= CONTEXT - fixed:
        text += "z"
    documents = DocumentStore()
    ids = documents.add([text, text + "z"])
    with engine.session(documents) as session:
        session.submit(PromptBatch(REFUND, ids[:, None]))
        found = list(session.run())
        scores = scores_by_row(found, 0, 2)
    assert abs(scores[0] - expected_margin(model, REFUND, text)) < 1e-4
    assert np.isnan(scores[1])
    assert session.counters.requested_tokens == CONTEXT


def test_runs_repeat_bit_for_bit_and_batch_size_only_rounds(model: Any, engine: Engine) -> None:
    documents = DocumentStore()
    ids = documents.add([f"{text} {i}" for i in range(9) for text in TEXTS])
    batch = PromptBatch(REFUND, ids[:, None])

    def scores(budget: int) -> np.ndarray:
        assert isinstance(engine, LoadedEngine)
        engine.limits = replace(engine.limits, max_batched_tokens=budget)
        with engine.session(documents) as session:
            ticket = session.submit(batch)
            return scores_by_row(list(session.run()), ticket, len(ids))

    first = scores(1024)
    np.testing.assert_array_equal(first, scores(1024))
    np.testing.assert_allclose(scores(1), first, atol=1e-4)


def test_more_may_be_submitted_between_answers(engine: Engine) -> None:
    documents = DocumentStore()
    ids = documents.add(TEXTS)
    with engine.session(documents) as session:
        session.submit(PromptBatch(REFUND, ids[:, None]))
        found = []
        for answers in session.run():
            found.append(answers)
            if answers.ticket == 0:
                survivors = documents.add(["a survivor", "refund please"])
                session.submit(PromptBatch(RUDE, survivors[:, None]))
        assert len(scores_by_row(found, 1, 2)) == 2


def test_an_abandoned_iterator_leaves_the_rest_to_the_next(engine: Engine) -> None:
    assert isinstance(engine, LoadedEngine)
    engine.limits = replace(engine.limits, max_batched_tokens=64)
    documents = DocumentStore()
    ids = documents.add([f"{text} {i}" for i, text in enumerate(TEXTS)])
    with engine.session(documents) as session:
        session.submit(PromptBatch(REFUND, ids[:, None]))
        first = next(session.run())
        rest = list(session.run())
        assert 0 < len(first.rows) < len(ids)
        scores_by_row([first, *rest], 0, len(ids))


def test_an_empty_batch_and_an_empty_queue_give_nothing(engine: Engine) -> None:
    documents = DocumentStore()
    with engine.session(documents) as session:
        assert list(session.run()) == []
        session.submit(PromptBatch(REFUND, np.empty((0, 1), dtype=np.int64)))
        assert list(session.run()) == []
        assert session.counters.batches == 0


def test_one_session_at_a_time_and_none_after_its_end(engine: Engine) -> None:
    documents = DocumentStore()
    batch = PromptBatch(REFUND, documents.add(["x"])[:, None])
    with pytest.raises(ZeroDivisionError), engine.session(documents) as session:
        with pytest.raises(RunError, match="already runs a query"):
            engine.session(documents)
        raise ZeroDivisionError
    with pytest.raises(RunError, match="This session is closed"):
        session.submit(batch)
    with pytest.raises(RunError, match="This session is closed"):
        list(session.run())
    with engine.session(documents):
        session.__exit__(None, None, None)  # leaving twice frees nobody else's session
        with pytest.raises(RunError, match="already runs a query"):
            engine.session(documents)


@pytest.mark.parametrize(
    "ids", [np.array([[0, 0]]), np.array([0]), np.array([[1]]), np.array([[-1]])]
)
def test_ids_that_are_no_documents_are_refused(engine: Engine, ids: np.ndarray) -> None:
    documents = DocumentStore()
    documents.add(["only one"])
    with engine.session(documents) as session, pytest.raises(InputError):
        session.submit(PromptBatch(REFUND, ids))


def test_prompts_begin_with_the_bos_of_the_tokenizer(tmp_path: Path) -> None:
    theirs = make_model("llama", tied=True)
    folder = write_folder(tmp_path, theirs)
    import json

    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text())
    bos = next(t["id"] for t in spec["added_tokens"] if t["content"] == "<|im_start|>")
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [bos], "tokens": ["<|im_start|>"]}
        },
    }
    path.write_text(json.dumps(spec))
    documents = DocumentStore()
    ids = documents.add(["refund"])
    with load(folder).session(documents) as session:
        session.submit(PromptBatch(REFUND, ids[:, None]))
        (answers,) = session.run()
    encoder = ModelFiles(folder).encoder
    tokens = [bos]
    for part in RAW_V1.parts(REFUND):
        tokens += encoder.ids(part.text if part.document is None else "refund")
    found = answer_tokens(encoder)
    logits = plain_logits(theirs, tokens)[list(found.true + found.false)]
    assert abs(answers.scores[0, 0] - float(margins(logits[None], len(found.true)))) < 1e-4
    assert torch.isfinite(logits).all()


def test_lengths_and_room_are_those_that_decide_what_fits(model: Any, engine: Engine) -> None:
    encoder = ModelFiles(model[1]).encoder
    documents = DocumentStore()
    ids = documents.add([*TEXTS, "long " * 300])[:, None]
    with engine.session(documents) as session:
        tokens, room = session.lengths(REFUND, ids)
        assert tokens[:, 0].tolist() == [
            len(encoder.ids(text)) for text in documents.texts(ids[:, 0])
        ]
        assert room == CONTEXT - sum(len(encoder.ids(p.text)) for p in RAW_V1.parts(REFUND))
        session.submit(PromptBatch(REFUND, ids))
        failed = {row for answers in session.run() for row in answers.errors}
    assert failed == {row for row, count in enumerate(tokens[:, 0].tolist()) if count > room}


class FailingRunner:
    """A device that fails at one batch, when it is launched or when it is waited for."""

    def __init__(self, runner: Any, at: int, error: Exception, late: bool) -> None:
        self._runner, self._at, self._error, self._late = runner, at, error, late

    def launch(self, *arguments: Any) -> Any:
        self._at -= 1
        if self._at:
            return self._runner.launch(*arguments)
        if not self._late:
            raise self._error
        error = self._error

        class Lost:
            def result(self) -> Any:
                raise error

        return Lost()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("no room\nfor it"), OutOfMemory, r"out of memory \(no room\)"),
        (MemoryError("Unable to allocate"), OutOfMemory, r"out of memory \(Unable to allocate\)"),
        (OSError(errno.ENOMEM, "no pages"), OutOfMemory, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), OutOfMemory, "of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"), OutOfMemory, "of memory"),
        (torch.AcceleratorError("CUDA error: out of memory"), OutOfMemory, "out of memory"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), OutOfMemory, "out of memory"),
        (
            RunError("CUDA's driver refused cuLaunchKernel: out of memory (2)."),
            OutOfMemory,
            "memory",
        ),
        (torch.AcceleratorError("lost"), RunError, "failed while it ran a batch"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
            RunError,
            "while it ran a batch",
        ),
        (RuntimeError("The size of tensor a must match"), RuntimeError, "^The size of tensor a"),
        (OSError(errno.EIO, "broken"), OSError, "broken"),
    ],
)
def test_a_device_that_fails_says_so_and_gives_the_engine_back(
    engine: Any, late: bool, error: Exception, kind: type, message: str
) -> None:
    documents = DocumentStore()
    ids = documents.add([f"document {i} of some length" for i in range(400)])
    good = engine._ready()
    engine._runner = (engine.limits.slots, FailingRunner(good, 2, error, late))
    try:
        with engine.session(documents) as session:
            session.submit(PromptBatch(REFUND, ids[:, None]))
            with pytest.raises(kind, match=message) as raised:
                list(session.run())
            assert raised.type is kind, "only a lack of memory is one"
    finally:
        engine._runner = (engine.limits.slots, good)
    with engine.session(documents) as session:
        session.submit(PromptBatch(REFUND, ids[:2, None]))
        assert sum(len(answers.rows) for answers in session.run()) == 2


def test_an_engine_shrinks_its_batches_then_its_kv_cache_and_then_no_more(engine: Any) -> None:
    before = engine.limits
    try:
        steps = []
        while (done := engine.shrink()) is not None:
            steps.append(done)
        kinds = [step.split(" of ")[0] for step in steps]
        assert kinds == sorted(kinds), "batches first, then room"
        assert (
            engine.limits.max_batched_tokens <= LEAST_BATCHED_TOKENS
            or before.max_batched_tokens <= LEAST_BATCHED_TOKENS
        )
        assert engine.limits.slots <= LEAST_SLOTS
    finally:
        engine.limits = before
