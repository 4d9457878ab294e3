"""The generated tables have the benchmark's shape, and their tokens are what they claim."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.corpora import ConstructedLengths, corpus
from covey.engine.readout import answer_tokens
from covey.errors import InputError
from covey.models.files import ModelFiles
from covey.models.tokenizer import encoder_from_file
from models.smollm2 import smollm2_path
from suite.__main__ import main
from suite.counts import published_fresh
from suite.predicates import PREDICATES, literals
from suite.published import FRESH_MILLIONS
from suite.queries import QUERIES
from suite.shapes import ROWS, SCALES, TRACE_TOTAL, TRAJECTORIES, rows
from suite.tables import make_corpus
from suite.tokens import CorpusTokens, suite_encoder
from suite.truth import MODES, plant
from suite.words import TOKENS_PER_WORD, vocabulary

COLUMNS = sorted({column for p in PREDICATES.values() for column in p.documents})


@pytest.mark.parametrize("scale", [0.01, 0.1])
def test_row_counts_and_ids(scale: float) -> None:
    tables = corpus(scale).tables
    assert {name: len(table) for name, table in tables.items()} == {
        name: rows(name, scale) for name in ROWS
    }
    for name, table in tables.items():
        assert len(set(table["id"].to_pylist())) == len(table), name


@pytest.mark.parametrize("source", COLUMNS)
def test_texts_are_as_long_as_planned_and_no_two_are_equal(source: tuple[str, str]) -> None:
    made = corpus(0.01)
    assert (CorpusTokens(made).lengths(source) == made.lengths[source[0]]).all()
    texts = made.tables[source[0]][source[1]].to_pylist()
    assert len(set(texts)) == len(texts)


def test_a_word_is_one_token_of_smollm2_and_of_the_suite() -> None:
    words = {word for section in vocabulary().values() for word in section}
    text = "".join(f" {word}" for word in sorted(words))
    for encoder in (ModelFiles(smollm2_path()).encoder, suite_encoder()):
        assert len(encoder.ids(text)) == TOKENS_PER_WORD * len(words)


@pytest.mark.parametrize("source", COLUMNS)
def test_smollm2_counts_as_the_suites_tokenizer_does(source: tuple[str, str]) -> None:
    made = corpus(0.01)
    texts = made.tables[source[0]][source[1]].to_pylist()[:12]
    counted = np.diff(ModelFiles(smollm2_path()).encoder.encode(texts)[1]).sum()
    # A term's first word has no space before it, which costs SmolLM2 a token now and then.
    assert counted == pytest.approx(made.lengths[source[0]][: len(texts)].sum(), rel=0.13)


def test_a_smaller_scale_is_the_beginning_of_a_larger_one() -> None:
    small, large = corpus(0.01).tables, corpus(0.1).tables
    for name, table in small.items():
        assert table.equals(large[name].slice(0, len(table))), name


def test_a_seed_gives_the_same_tables_again_and_another_seed_others() -> None:
    assert corpus(0.01).tables["claims"].equals(make_corpus(0.01).tables["claims"])
    assert not corpus(0.01).tables["claims"].equals(make_corpus(0.01, seed=1).tables["claims"])


def test_traces_are_grouped_and_each_snapshot_begins_the_next() -> None:
    made = corpus(0.01)
    table = made.tables["agent_traces"]
    tokens = CorpusTokens(made).column(("agent_traces", "trace"))
    names, turns = table["trajectory_id"].to_pylist(), table["turn_index"].to_pylist()
    assert len(set(names)) == TRAJECTORIES[0] == 1 + sum(a != b for a, b in pairwise(names))
    texts = table["trace"].to_pylist()
    for i in range(1, len(table)):
        if names[i] == names[i - 1]:
            assert turns[i] == turns[i - 1] + 5
            assert texts[i].startswith(texts[i - 1]) and len(texts[i]) > len(texts[i - 1])
            shorter = tokens.run(i - 1)
            assert (tokens.run(i)[: len(shorter)] == shorter).all()


def test_traces_have_the_published_total_cap_and_quantiles() -> None:
    lengths = corpus(0.1).lengths["agent_traces"]
    assert lengths.sum() == TRACE_TOTAL and lengths.max() <= 24_000
    assert np.median(lengths) == pytest.approx(8_880.5, rel=0.03)
    assert np.quantile(lengths, 0.9) == pytest.approx(17_988, rel=0.03)


def test_published_fresh_tokens_follow_from_the_tables_and_the_survivors() -> None:
    tokens = ConstructedLengths(corpus(0.1))
    truth = plant(tokens.corpus, "measured")
    deviations = {
        name: published_fresh(QUERIES[name], tokens, truth) / (1e6 * millions) - 1
        for name, millions in FRESH_MILLIONS.items()
    }
    near = [name for name, share in deviations.items() if abs(share) <= 0.05]
    assert len(near) >= 25, deviations
    assert max(abs(share) for share in deviations.values()) <= 0.10, deviations


def test_the_planted_truth_has_the_published_survivors() -> None:
    made = corpus(0.1)
    found = plant(made, "measured").judged
    f1, f4, f5 = found["F1"], found["F4"], found["F5"]
    assert (f1.sum(), (f1 & f4).sum(), (f1 & f4 & f5).sum()) == (4_380, 1_257, 727)
    assert found["DISCUSS"].any(1).sum() == 2_649 and found["SERIOUS"].sum() == 274
    assert (found["F11"].sum(), (found["F11"] & found["F12"]).sum()) == (361, 47)
    assert (found["F11"] & found["F13"][made.page]).sum() == 185
    assert (found["LEP1"].sum(), (found["LEP1"] & found["LEP2"]).sum()) == (356, 150)
    # Every report has a reaction of the heart, so that chains of joins lose none.
    assert found["REACTION"][:, found["CARDIO"]].any(1).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [0.01, 0.1])
def test_planted_shares_hold_at_every_scale(mode: str, scale: float) -> None:
    truth = plant(corpus(scale), mode)
    expected = {
        "measured": {"F1": 0.876, "SERIOUS": 0.548, "F13": 0.596, "REACTION": 0.23},
        "labels": {"F1": 0.801, "SERIOUS": 0.638, "F13": 0.554, "REACTION": 0.034},
    }
    for name, share in expected[mode].items():
        assert truth.judged[name].mean() == pytest.approx(share, abs=0.02), name
    for name, scores in truth.scores.items():
        assert ((scores > 0.5) == truth.judged[name]).all() and len(set(scores)) == len(scores)


def test_label_lists_have_the_benchmarks_sizes_and_shared_beginnings() -> None:
    sizes = {p.name: len(p.labels) for p in PREDICATES.values() if p.labels}
    assert sorted(sizes.values()) == sorted([4, 21, 8, 4, 26, 11, 15, 5, 4, 27, 8])
    progress = [label.text for label in PREDICATES["PROGRESS"].labels]
    assert sum(text.startswith("changed the code") for text in progress) == 3
    complaints = [label.text.split()[0] for label in PREDICATES["COMPLAINT"].labels]
    assert (complaints.count("poor"), complaints.count("too")) == (3, 2)


def test_scale_factors() -> None:
    assert SCALES == (0.01, 0.1, 0.5, 1.0)
    with pytest.raises(InputError, match=r"Known: 0\.01"):
        rows("reviews", 0.2)


def test_a_checkpoint_gets_the_suites_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert main(["tokenizer", str(tmp_path)]) == 0
    read = encoder_from_file(tmp_path / "tokenizer.json")
    texts = [corpus(0.01).tables["reviews"]["body"][0].as_py(), "Größe: 12.5 €\n", *literals()]
    for text in texts:
        assert read.ids(text) == suite_encoder().ids(text)
        assert read.decode(read.ids(text)) == text
    words = answer_tokens(read)
    assert len(words.true) == len(words.false) == 4
    assert main(["tokenizer", str(tmp_path / "nothing")]) == 1
