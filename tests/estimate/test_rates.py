"""Measured rates: fitted from three batches, kept on disk, used by estimates of a real model."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.engine.local import LocalModel
from covey.engine.timing import PROMPT, Timing, fit, make_batch
from covey.estimate.cost import Work
from covey.estimate.figures import Range, money, seconds, size
from covey.estimate.lengths import DocumentLengths
from covey.estimate.profile import ByteMeasure
from covey.estimate.rates import Rates, read_rates, write_rates
from covey.execution.source_samples import SAMPLE_PAIRS, sample_sizes
from covey.hardware.devices import cpu_facts
from covey.hardware.paths import cache_folder
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS

TRUE = Rates(0.05, 0.002, 1e-6, 1.3)


def timing(tokens: int, context: int, noise: float = 1.0) -> Timing:
    own = min(tokens, PROMPT)
    pairs = tokens * context + tokens // own * own * (own + 1) // 2
    return Timing(tokens, pairs, TRUE.seconds(Work(fresh=tokens, pairs=pairs, passes=1)) * noise)


def test_exact_times_give_their_rates_back() -> None:
    found = fit(timing(128, 0), timing(1024, 0), timing(128, 2048))
    assert found.pass_seconds == pytest.approx(TRUE.pass_seconds)
    assert found.token_seconds == pytest.approx(TRUE.token_seconds)
    assert found.pair_seconds == pytest.approx(TRUE.pair_seconds)


@given(*[st.floats(0.05, 20.0)] * 3)
def test_no_noise_makes_a_rate_negative_or_a_token_free(a: float, b: float, c: float) -> None:
    found = fit(timing(128, 0, a), timing(1024, 0, b), timing(128, 2048, c))
    assert min(found.pass_seconds, found.pair_seconds) >= 0
    assert found.token_seconds > 0 and np.isfinite(
        found.seconds(Work(fresh=1000, pairs=1e6, passes=1))
    )


def test_the_batch_that_is_timed_is_a_forest_of_chains() -> None:
    tokens = 2 * PROMPT + 40
    batch = make_batch(tokens, 10, kept=3)
    for row in range(0, tokens, 7):
        first = row // PROMPT * PROMPT
        seen = [k for k in range(tokens) if k <= row < batch.subtree_ends[k]]
        assert seen == list(range(first, row + 1))
    assert batch.logits_indices.tolist() == [PROMPT - 1, 2 * PROMPT - 1, tokens - 1]
    assert batch.positions[:3].tolist() == [10, 11, 12]
    assert batch.slot_mapping[:4].tolist() == [0, 1, 2, -1]


def test_rates_are_kept_by_device_model_and_kernels(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "new"))
    assert read_rates("gpu", "model") is None
    write_rates("gpu", "model", "fast", TRUE)
    assert read_rates("gpu", "model") == read_rates("gpu", "model", "fast") == TRUE
    assert read_rates("gpu", "model", "slow") is None
    assert read_rates("gpu", "other") is None and read_rates("cpu", "model") is None
    (path,) = (cache_folder() / "rates").iterdir()
    older = json.dumps(json.loads(path.read_text()) | {"method": 1})
    for text in ("", "{}", json.dumps({"kernels": "fast", "rates": {"old": 1}}), older):
        path.write_text(text)
        assert read_rates("gpu", "model", "fast") is None


def test_rates_that_cannot_be_kept_are_lost_without_a_word(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    write_rates("gpu", "model", "fast", TRUE)
    assert read_rates("gpu", "model") is None


def test_a_processor_has_some_peak() -> None:
    facts = cpu_facts()
    assert facts.peak("float8_e4m3") == facts.peak("float32") > 1e9
    assert facts.memory > 1e8 and facts.price > 0


def test_the_largest_source_is_cut_first() -> None:
    assert sample_sizes({"t": 900_000}) == {"t": 2000}
    assert sample_sizes({"t": 30, "p": 40}) == {"t": 30, "p": 40}
    found = sample_sizes({"t": 900_000, "p": 1000})
    assert found["p"] == 1000 and found["t"] * 1000 <= SAMPLE_PAIRS
    many = sample_sizes({str(i): 10_000 for i in range(5)})
    assert np.prod(list(many.values())) <= SAMPLE_PAIRS and min(many.values()) >= 1


def book(texts: list[str], shares: bool = True) -> tuple[DocumentLengths, np.ndarray]:
    documents = DocumentStore()
    ids = documents.add(texts)
    return DocumentLengths(documents, ByteMeasure(LAYOUTS[DEFAULT_LAYOUT]), shares), ids


def test_texts_beyond_what_is_counted_go_by_their_bytes() -> None:
    texts = [f"{i:09} " * 440 for i in range(300)]
    lengths, ids = book(texts)
    assert lengths.of(ids) == pytest.approx(np.full(300, 1000), rel=0.01)
    long, ids = book(["x" * 3_000_000])
    assert long.of(ids) == pytest.approx([3_000_000 / 4.4], rel=0.01)
    assert lengths.of(np.empty(0, np.int64)).tolist() == []


def test_common_beginnings_are_a_share_of_all_tokens() -> None:
    opening, texts = "x" * 880, []
    texts = [opening + f"{i:03}" * 147 for i in range(4)]
    lengths, ids = book(texts)
    lengths.of(ids)
    # Three of four openings of 880 in 4 x 1,321 characters, less a token each.
    assert lengths.shared(ids) == pytest.approx(3 * 880 / (4 * 1321), abs=0.01)
    apart, ids = book(texts, shares=False)
    assert apart.shared(ids) == 0.0


def test_figures_for_people() -> None:
    assert [seconds(t) for t in (0.0041, 0.2, 3.42, 45, 125, 12_000, 1e6)] == [
        "4.1 ms", "0.20 s", "3.4 s", "45 s", "2 min 5 s", "3 h 20 min", "12 days",
    ]  # fmt: skip
    assert [money(d) for d in (0.0, 0.004, 0.31, 1234.5)] == [
        "$0.00", "under $0.01", "$0.31", "$1,234.50",
    ]  # fmt: skip
    assert Range(1, 2, 3).shown(size, known=True) == "about 2 (1 to 3)"
    assert Range(1, 2, 3).shown(size, known=False) == "1 to 3"
    assert Range(2, 2, 2).shown(size, known=False) == "2"
    assert Range(0, 0, float("inf")).shown(size, known=True) == "not known"


def test_estimates_of_a_real_model_meet_its_tokens() -> None:
    with covey.connect(LocalModel("smollm2-135m", device="cpu"), progress=False) as con:
        bodies = ["The lid broke.", "Thank you!", "Where is my order, please?", "Thank you!"]
        con.register("t", pa.table({"body": bodies}))
        con.register("p", pa.table({"title": ["returns", "late parcels"]}))
        join = "SELECT 1 FROM t JOIN p ON AI.IF(PROMPT('Is {0} about {1}?', t.body, p.title))"
        query = con.sql(join)
        statement = json.loads(query.explain("json"))["statements"][0]["expected"]
        counters = query.report.counters
        assert statement["calls"]["expected"] == counters.prompts == 6
        assert statement["requested"]["expected"] == counters.requested_tokens
        assert statement["fresh"]["expected"] == pytest.approx(counters.fresh_tokens, rel=0.1)
        # The model was opened just now, which measured it, and its answers are known from now on.
        assert con.model.loaded is not None
        later = LocalModel("smollm2-135m", device="cpu")
        assert later.profile().fingerprint == con.model.loaded.fingerprint
        with covey.connect(later, progress=False) as again:
            again.register("t", pa.table({"body": bodies}))
            again.register("p", pa.table({"title": ["returns", "hours", "late parcels"]}))
            # Six of the nine pairs have their answers.
            assert again.sql(join).estimate().calls == Range.exactly(3)
        assert json.loads(query.explain("json"))["statements"][0]["expected"]["measured"]
