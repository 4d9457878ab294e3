"""What labels cost, on symbolic prompts: 26 organ classes for 1,127 reaction terms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from covey.arrays import Float64
from covey.engine.base import Counters, PromptBatch
from covey.engine.labels import Wanted
from covey.engine.limits import Limits
from covey.engine.questions import QuestionEncoder
from covey.engine.session import LocalSession
from covey.kernels.base import ForwardBatch
from covey.models.files import ModelFiles
from covey.models.tokenizer import TextEncoder
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Label, Method, Question, QuestionKind
from engine.plans import SPEC
from forest.brute import minimum_tokens
from models.smollm2 import smollm2_path

# Ours, in the manner of a medical classification: 1 to 11 words, many openings shared.
CLASSES = """Blood disorders;Blood vessels;Bones;Brain and nerves;Breathing and the lungs
Breathing;Cancer, benign and malignant, of any organ, cysts and polyps included
Digestion;Digestion of fats;Ears and hearing;Ears and balance;Eyes;Feelings and behaviour
Glands and hormones;Heart rhythm;Heart valves and muscle;Immune system;Immune response to food
Infections by bacteria;Infections by viruses;Injury and poisoning;Kidneys and bladder
Liver and bile;Muscles and joints;Pregnancy, birth and the time after it;Skin and hair"""
LABELS = tuple(map(Label, CLASSES.replace("\n", ";").split(";")))
QUESTION = Question(QuestionKind.CLASSIFY, "Which organ class is it?", 1, LABELS)


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return ModelFiles(smollm2_path()).encoder


def terms(count: int) -> list[str]:
    """Short terms that share leading words."""
    rng = np.random.default_rng(9)
    first = ["acute", "chronic", "severe", "mild", "blood", "heart", "skin", "liver"]
    second = ["pain", "failure", "rash", "bleeding", "swelling", "infection", "loss", "level"]
    found: dict[str, None] = {}
    while len(found) < count:
        words = [rng.choice(first), rng.choice(second), str(rng.integers(100))]
        found[" ".join(words[: rng.integers(1, 4)])] = None
    return list(found)


@dataclass
class Drawing:
    """Runs batches by drawing every logit.

    Attributes:
        answers: all answers so far.
    """

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    answers: int = 0
    found: Float64 = field(default_factory=lambda: np.empty(0))

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Drawing:
        self.answers += len(batch.logits_indices)
        more = 0 if wanted is None else len(wanted.answers)
        self.found = self.rng.normal(size=len(batch.logits_indices) + more)
        return self

    def result(self) -> tuple[Float64, float]:
        return self.found, 0.0


def run(encoder: TextEncoder, question: Question, texts: list[str]) -> tuple[Counters, int]:
    """The account of a session, and how many states were read."""
    store = DocumentStore()
    ids = store.add(texts)
    limits = Limits(context=10_000, max_batched_tokens=1024, slots=400_000)
    runner = Drawing()
    with LocalSession(store, runner, SPEC, encoder, RAW_V1, limits, lambda: None) as session:
        session.submit(PromptBatch(question, ids[:, None]))
        assert sum(len(answers.rows) for answers in session.run()) == len(texts)
    return session.counters, runner.answers


def tokens_of(encoder: TextEncoder, texts: list[str]) -> int:
    """Distinct prefixes of the prompts, their cues included, and no label behind them."""
    prompts = []
    for text in texts:
        parts = RAW_V1.parts(QUESTION)
        words = [part.text if part.document is None else text for part in parts]
        prompts.append([token for word in words for token in encoder.ids(word)])
    return minimum_tokens(prompts)


@pytest.mark.parametrize("method", [Method.STEPWISE, Method.TRIE, None])
def test_26_labels_cost_little_more_than_the_prompts(
    encoder: TextEncoder, method: Method | None
) -> None:
    assert len(LABELS) == 26
    lengths = [len(label.text.split()) for label in LABELS]
    assert min(lengths) == 1 and max(lengths) >= 11
    texts = terms(1127)
    counters, _ = run(encoder, replace(QUESTION, method=method), texts)
    assert counters.fresh_tokens <= 1.15 * tokens_of(encoder, texts)


def test_a_step_asks_where_labels_part_and_nowhere_else(encoder: TextEncoder) -> None:
    texts = terms(300)
    steps = replace(QUESTION, method=Method.STEPWISE)
    tree = QuestionEncoder(RAW_V1, encoder, None).encode(steps).tree
    assert tree is not None and 1 < tree.nodes < len(LABELS)
    plain = tokens_of(encoder, texts)
    one, reads = run(encoder, replace(QUESTION, method=Method.TRIE), texts)
    assert reads == tree.nodes * len(texts)
    assert one.fresh_tokens == plain + tree.path_tokens * len(texts)
    counters, reads = run(encoder, steps, texts)
    assert len(texts) < reads < tree.nodes * len(texts)
    # A further read costs the cue's last token and the tokens to its node.
    further, longest = reads - len(texts), max(map(len, tree.paths))
    assert plain < counters.fresh_tokens <= plain + further * (1 + longest)


def test_labels_that_begin_differently_need_one_read_whatever_their_length(
    encoder: TextEncoder,
) -> None:
    labels = tuple(Label(f"{word} and all that belongs to it") for word in ("blood", "skin", "ear"))
    texts = terms(50)
    for method in Method:
        asked = replace(QUESTION, labels=labels, method=method)
        _, reads = run(encoder, asked, texts)
        assert reads == len(texts)
