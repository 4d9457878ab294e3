"""Labels and their probabilities against brute force, whatever the method and the tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.engine import load
from covey.engine.base import Counters, PromptBatch
from covey.engine.labels import build_tree
from covey.engine.loaded import LoadedEngine
from covey.engine.questions import QuestionEncoder
from covey.engine.readout import answer_tokens, margins
from covey.errors import InputError
from covey.models.files import ModelFiles
from covey.models.tokenizer import TextEncoder
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import (
    CONTENT_FREE,
    Calibration,
    Example,
    Label,
    Method,
    Question,
    QuestionKind,
)
from models.smollm2 import smollm2_path, transformers_smollm2
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


@pytest.mark.parametrize("seed, count", [(0, 2), (1, 3), (2, 12), (3, 10)])
def test_labels_and_probabilities_are_those_of_brute_force(
    tiny: Any, seed: int, count: int
) -> None:
    brute, engine = tiny
    budget, slots, node_tokens = LIMITS[seed]
    engine.limits = replace(
        engine.limits, max_batched_tokens=budget, slots=slots, node_tokens=node_tokens
    )
    labels = random_labels(seed, count)
    one = Question(QuestionKind.CLASSIFY, "What does {0} say?", 1, labels)
    check_question(brute, engine, one, [(text,) for text in TEXTS[: 4 - seed]])
    pair = Question(QuestionKind.CLASSIFY, "How do {0} and {1} relate?", 2, labels, anchor=seed % 2)
    pairs = [(a, b) for a in TEXTS[:3] for b in PARTNERS]
    check_question(brute, engine, pair, pairs[: 5 - seed])
    check_question(brute, engine, Question(QuestionKind.CLASSIFY, "Which?", 0, labels), [()])


@pytest.fixture(scope="module")
def smollm2() -> Any:
    encoder = ModelFiles(smollm2_path()).encoder
    return BruteForce(transformers_smollm2(), encoder), load("smollm2-135m")


REACTIONS = (
    "Blood and lymphatic system disorders",
    "Cardiac disorders",
    "Cardiac disorders of the newborn and of the very small premature child",
    "Infections",
    "Infections and infestations",
    "Infection",
    "Skin",
)


def test_smollm2_labels_are_those_of_brute_force(smollm2: Any) -> None:
    brute, engine = smollm2
    labels = tuple(map(Label, REACTIONS))
    lengths = [len(brute._encoder.ids(" " + text)) for text in REACTIONS]
    assert min(lengths) == 1 and max(lengths) >= 12
    question = Question(QuestionKind.CLASSIFY, "Which organ class is it?", 1, labels)
    check_question(brute, engine, question, [("palpitations",), ("sepsis of the skin",)])
    letters = replace(question, method=Method.LETTERS, full=True)
    found, _ = ask(engine, letters, [("palpitations",)])
    np.testing.assert_allclose(found[0], brute.scores(letters, ("palpitations",)), atol=1e-4)


def test_a_thousand_labels_sum_to_one_and_steps_find_the_best(tiny: Any) -> None:
    _, engine = tiny
    engine.limits = replace(engine.limits, max_batched_tokens=512, slots=9_000, node_tokens=0)
    syllables = ["the ", "order", "re", "fund", "cust", "omer ", "for ", "a", "wait", "er "]
    names = ["".join(syllables[int(d)] for d in f"{i:03d}").strip() for i in range(1000)]
    labels = tuple(Label(f"{name} {i}"[:12]) for i, name in enumerate(dict.fromkeys(names)))
    labels = tuple(dict.fromkeys(labels))
    labels += tuple(Label(f"L{i}") for i in range(1000 - len(labels)))
    # The prompt that lists a thousand labels is long; what is read of it is the matter.
    question = Question(QuestionKind.CLASSIFY, "", 0, labels, full=True)
    engine.limits = replace(engine.limits, context=100_000)
    full, _ = ask(engine, question, [()])
    assert full.shape == (1, 1000)
    np.testing.assert_allclose(np.exp(full).sum(), 1.0, atol=1e-9)
    for method in (Method.TRIE, Method.STEPWISE):
        best, _ = ask(engine, replace(question, full=False, method=method), [()])
        np.testing.assert_allclose(best[0, 1], full.max(), atol=1e-4)
        assert full[0, int(best[0, 0])] == pytest.approx(full.max(), abs=1e-4)


def plain_tokens(brute: BruteForce, question: Question, rows: list[tuple[str, ...]]) -> int:
    """Distinct prefixes of the prompts alone, cue included, no label behind them."""
    seen: set[tuple[int, ...]] = set()
    for row in rows:
        ids = brute.prompt(question, row)
        seen |= {tuple(ids[:n]) for n in range(1, len(ids) + 1)}
    return len(seen)


TREE = ("refund", "refund for the order", "refund for a customer", "waits", "answer a", "answer b")


def test_the_trie_reads_a_prompt_once_and_a_step_one_token_of_it(tiny: Any) -> None:
    brute, engine = tiny
    engine.limits = replace(engine.limits, max_batched_tokens=64, slots=9_000, node_tokens=0)
    labels = tuple(map(Label, TREE))
    question = Question(QuestionKind.CLASSIFY, "Which?", 1, labels, method=Method.TRIE)
    rows = [(f"the customer {i} waits {i * i}",) for i in range(12)]
    plain = plain_tokens(brute, question, rows)
    tree = engine_tree(engine, question)
    _, counters = ask(engine, question, rows)
    assert counters.fresh_tokens == counters.minimum_tokens == plain + 12 * tree.path_tokens
    _, counters = ask(engine, replace(question, method=Method.STEPWISE), rows)
    # Between steps a prompt stays, so that a step reads the cue's last token and its path.
    steps = counters.fresh_tokens - plain - 12 * len(tree.paths[0])
    longest = max(map(len, tree.paths)) + 1
    assert 0 <= steps <= 12 * (tree.nodes - 1) * longest
    assert counters.requested_tokens == sum(
        len(brute.prompt(question, row)) + len(tree.paths[0]) for row in rows
    )


def engine_tree(engine: LoadedEngine, question: Question) -> Any:
    tree = QuestionEncoder(RAW_V1, engine._encoder, engine._spec.bos).encode(question).tree
    assert tree is not None
    return tree


def test_examples_and_label_by_label_are_whole_prompts(tiny: Any) -> None:
    brute, engine = tiny
    engine.limits = replace(engine.limits, max_batched_tokens=64, slots=600, node_tokens=0)
    labels = (Label("refund"), Label("refund for", "money"), Label("waits"))
    examples = (Example(("the order",), "waits"), Example(("a customer",), "refund"))
    rows = [(text,) for text in TEXTS]
    question = Question(QuestionKind.CLASSIFY, "Which?", 1, labels, examples=examples)
    assert "the order\nANSWER: waits\n\nDOCUMENT:\na customer" in "".join(
        part.text for part in RAW_V1.parts(question)
    )
    check_question(brute, engine, question, rows)
    each = Question(QuestionKind.EACH, "Which?", 1, labels)
    answers = answer_tokens(brute._encoder)
    rows_of_head = list(answers.true + answers.false)
    expected = [
        [
            float(margins(plain_logits(brute._theirs, ids)[rows_of_head][None], len(answers.true)))
            for ending in RAW_V1.endings(each)
            for ids in [[*brute.prompt(each, row), *brute._encoder.ids(ending)]]
        ]
        for row in rows
    ]
    found, _ = ask(engine, each, rows)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_examples_are_computed_once_for_all_rows(tiny: Any) -> None:
    brute, engine = tiny
    engine.limits = replace(engine.limits, max_batched_tokens=64, slots=9_000, node_tokens=0)
    examples = tuple(Example((f"the customer waits for order {i}",), "TRUE") for i in range(9))
    question = Question(QuestionKind.JUDGE, "Does the customer wait? {0}", 1, examples=examples)
    rows = [(f"order {i} is a refund",) for i in range(20)]
    _, counters = ask(engine, question, rows)
    assert counters.fresh_tokens == plain_tokens(brute, question, rows)


@pytest.mark.parametrize("kind", list(QuestionKind))
def test_a_prior_is_the_mean_over_content_free_documents(tiny: Any, kind: QuestionKind) -> None:
    _, engine = tiny
    engine.limits = replace(engine.limits, max_batched_tokens=40, slots=500, in_flight=2)
    labels = () if kind is QuestionKind.JUDGE else random_labels(1, 6)
    plain = Question(kind, "What does {0} say?", 1, labels, full=True)
    rows = [(text,) for text in TEXTS]
    scores, _ = ask(engine, plain, rows)
    prior = ask(engine, plain, [(text,) for text in CONTENT_FREE])[0].mean(axis=0)
    expected = scores - prior
    if kind is QuestionKind.CLASSIFY:
        expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    corrected = replace(plain, calibration=Calibration(prior=True))
    found, counters = ask(engine, corrected, rows)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert counters.prompts == len(rows)
    if kind is QuestionKind.CLASSIFY:
        for method in (Method.TRIE, Method.STEPWISE):
            best, _ = ask(engine, replace(corrected, full=False, method=method), rows)
            shifted = scores - prior
            at = shifted[np.arange(len(rows)), best[:, 0].astype(int)]
            np.testing.assert_allclose(at, shifted.max(axis=1), atol=1e-4)
            np.testing.assert_allclose(best[:, 1], at, atol=1e-4)
    else:
        line = replace(plain, calibration=Calibration(True, 0.5, -1.0))
        np.testing.assert_allclose(ask(engine, line, rows)[0], 0.5 * expected - 1.0, atol=1e-4)


def test_a_question_that_is_too_long_by_itself_fails_every_row(tiny: Any) -> None:
    _, engine = tiny
    before = engine.limits
    engine.limits = replace(engine.limits, context=12)
    for calibration in (None, Calibration(prior=True)):
        question = Question(
            QuestionKind.CLASSIFY, "", 1, random_labels(1, 6), calibration=calibration
        )
        scores, counters = ask(engine, question, [(text,) for text in TEXTS])
        assert np.isnan(scores).all() and counters.failed == len(TEXTS)
    engine.limits = before


def test_labels_with_equal_tokens_or_a_line_break_are_refused(tiny: Any) -> None:
    with pytest.raises(InputError, match="'a' and 'b' are the same to the model"):
        build_tree([[1, 2], [1, 2]], 9, ["a", "b"])
    with pytest.raises(InputError, match="'a\\\\nb' holds a line break"):
        build_tree([[1, 9, 2], [1, 2]], 9, ["a\nb", "b"])
