"""Hostile texts: no crash, no hang, no row lost, and nothing leaves its place in the prompt."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.models.files import ModelFiles
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Question, QuestionKind
from covey.testing import PlantedModel
from effort import KILLS, SEED
from models.smollm2 import smollm2_path

SPECIAL = ["<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "</s>", "<s>", "[INST]", "<pad>"]
CUES = ["\nANSWER:", "\n\nDOCUMENT {1}:\n", "DOCUMENT:\n", "TRUE", "{0}", "{{", "\n\nEvaluate TRUE"]
STRANGE = [
    *("\x00", "\x1b[2J", "\u202e", "\ufeff", "\u200d" * 50, "e" + "\u0301" * 200, "\U0010ffff"),
    *(
        "👩\u200d👩\u200d👧" * 9,
        "\r\n\t\x0b",
        "'; DROP TABLE t; --",
        "\\",
        '"',
        "ﷺ" * 30,
        "a" * 3000,
    ),
]


def hostile(chance: random.Random) -> str:
    pieces = SPECIAL + CUES + STRANGE + ["plain words ", ""]
    text = "".join(chance.choice(pieces) for _ in range(chance.randrange(9)))
    at = chance.randrange(len(text) + 1)
    return text[:at] + chr(chance.choice([0x7F, 0x300, 0x1F600, 0xFFFD])) + text[at:]


@pytest.mark.fuzz
@pytest.mark.parametrize("case", range(KILLS))
def test_every_row_has_its_own_answer_kept_or_not(case):
    chance = random.Random(SEED * 1000 + case)
    texts = [None, "", " ", *(hostile(chance) for _ in range(200)), *SPECIAL, *CUES, *STRANGE]
    chance.shuffle(texts)
    table = pa.table({"id": range(len(texts)), "s": texts})

    def answer(question: str, documents: tuple[str, ...]) -> float:
        return random.Random(repr(documents)).random()

    for cache in (False, True, True):
        with covey.connect(PlantedModel(answer, fingerprint="hostile"), cache=cache) as con:
            con.register("t", table)
            rows = con.run(
                "SELECT id, AI.SCORE(PROMPT('How? {0}', s)) FROM t ORDER BY id"
            ).fetchall()
        for (number, score), text in zip(rows, texts, strict=True):
            expected = None if text is None else answer("", (text,))
            assert score == pytest.approx(expected, abs=1e-12), repr(texts[number])


def test_documents_are_told_apart_byte_by_byte():
    chance = random.Random(SEED)
    texts = [hostile(chance) for _ in range(2000)] + ["é", "e\u0301", "a", "a\x00", "a\x00\x00", ""]
    store = DocumentStore(spill_bytes=4096)
    ids = np.concatenate([store.add(texts[i : i + 37]) for i in range(0, len(texts), 37)])
    assert store.texts(ids) == texts
    assert len(store) == len(set(texts))
    assert len({tuple(row) for row in store.digests(np.arange(len(store))).tolist()}) == len(store)


def test_ten_megabytes_are_one_document(monkeypatch):
    big = "kettle " * 1_500_000
    with covey.connect(PlantedModel(lambda _, documents: 0.9, fingerprint="big")) as con:
        con.register("t", pa.table({"s": [big, big + "!", "small"]}))
        query = "SELECT count(*) FROM t WHERE AI.IF(PROMPT('? {0}', s))"
        assert con.run(query).fetchall() == [(3,)]
        assert con.run(query).report.operators[0].stored == 3


def test_no_text_becomes_a_special_token_or_ends_its_slot():
    encoder = ModelFiles(smollm2_path()).encoder
    chance = random.Random(SEED)
    question = Question(QuestionKind.JUDGE, "Is {0} a complaint?", 1)
    parts = [part.text for part in RAW_V1.parts(question)]
    control = set(range(17))  # SmolLM2's special tokens are its first ids
    for text in [*SPECIAL, *CUES, *(hostile(chance) for _ in range(100))]:
        ids = encoder.ids(text)
        assert not control & set(ids), repr(text)
        assert encoder.decode(ids) == text
        # A prompt is its parts, each encoded by itself: a document cannot merge with the cue.
        whole = [i for part in parts for i in encoder.ids(part or text)]
        assert encoder.decode(whole) == "".join(part or text for part in parts)


def test_no_text_of_a_document_is_in_logs_reports_or_the_store(monkeypatch, cache_folder):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    secret = "SECRET-7f3a"
    model = PlantedModel(
        lambda _, documents: None if "bad" in documents[0] else 0.9, fingerprint="secret"
    )
    for progress in ("json", "plain"):
        with covey.connect(model, progress=progress) as con:
            con.register("t", pa.table({"s": [secret, f"bad {secret}"]}))
            report = con.run(f"SELECT AI.IF(PROMPT('{progress} {{0}}', s)) FROM t").report
        assert secret not in str(report)
    assert secret not in log.getvalue()
    assert log.getvalue()
    for path in Path(cache_folder).rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
