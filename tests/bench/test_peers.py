"""Peers get the same token ids and survivors that Covey works with, and their time is kept."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.corpora import write_checkpoint
from covey.errors import InputError, RunError
from suite.choose import chosen
from suite.compare import agreement_of
from suite.minimum import requested_tokens
from suite.peering import Interpreter, PeerSettings, PeerSuite, peer_names, write_work
from suite.peers.protocol import Stage, load_work
from suite.queries import QUERIES
from suite.querying import write_query
from suite.records import read_records
from suite.run import Settings, Suite, corpus_of
from suite.tables import DEFAULT_SEED
from suite.tokens import CorpusTokens
from suite.truth import plant


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> PeerSettings:
    """The double on the smoke size, with a small model's tokenizer."""
    folder = write_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return PeerSettings("double", str(folder), {}, "double", scale=0.0)


@cache
def tokens() -> CorpusTokens:
    return CorpusTokens(corpus_of(0.0, DEFAULT_SEED))


def silent(line: str) -> None:
    """Print nothing."""


def test_work_holds_every_prompt_token_for_token(tmp_path: Path) -> None:
    truth = plant(tokens().corpus)
    asked = write_work(tmp_path, QUERIES["FEV-8"], tokens(), truth)
    work = load_work(tmp_path)
    assert [len(stage) for stage in work.stages] == [stage.prompts for stage in asked]
    assert sum(int(s.lengths().sum()) for s in work.stages) == requested_tokens(asked, tokens())
    first = work.stages[0]
    claim = tokens().corpus.tables["claims"]["claim"].to_pylist()[first.partners[3]]
    page = tokens().corpus.tables["evidence"]["text"].to_pylist()[first.anchors[3]]
    text = tokens().encoder.decode(first.prompt(3))
    assert text.startswith(f"DOCUMENT:\n{page}\n\n(The document above is DOCUMENT {{1}}.)")
    assert text.endswith(f"\n\nDOCUMENT {{0}}:\n{claim}\nANSWER:")
    assert len(first.prompt(3)) == first.lengths()[3]
    # REFUTE(c2, e1) waits for SUPPORT(c1, e1) of its page, SUPPORT(c2, e2) for all of c2.
    follows = [(stage.after_anchor, stage.after_partner) for stage in work.stages]
    assert follows == [(-1, -1), (0, -1), (-1, 1)]


def test_windows_cover_all_prompts_once(tmp_path: Path) -> None:
    write_work(tmp_path, QUERIES["BIO-2"], tokens(), plant(tokens().corpus))
    (stage,) = load_work(tmp_path).stages
    windows = list(stage.windows(1_000))
    assert [i for window in windows for i in window] == list(range(len(stage)))
    assert all(_tokens(stage, window) <= 1_000 or len(window) == 1 for window in windows)


def _tokens(stage: Stage, window: range) -> int:
    return int(stage.lengths()[window.start : window.stop].sum())


def test_a_peer_runs_in_its_own_process_and_leaves_records(
    double: PeerSettings, tmp_path: Path
) -> None:
    said: list[str] = []
    suite = PeerSuite(replace(double, repeats=2), tmp_path, Interpreter(), said.append)
    suite.run(chosen(["FEV-3", "IMDB-14"]))
    records = {record.query: record for record in read_records(tmp_path)}
    assert records.keys() == {"FEV-3", "IMDB-14"}
    for record in records.values():
        assert len(record.runs) == 2 and record.start_seconds is not None
        assert record.minimum <= record.runs[0].fresh <= record.runs[0].requested
        assert record.runs[0].requested == record.requested
    said.clear()
    suite.run(chosen(["FEV-3"]))
    assert said == []


def test_a_failing_query_and_a_dying_peer_are_told(double: PeerSettings, tmp_path: Path) -> None:
    settings = replace(double, settings={"fail_on": "FEV-1"})
    PeerSuite(settings, tmp_path, Interpreter(), silent).run(chosen(["FEV-1", "LEP-1"]))
    problems = {record.query: record.problem for record in read_records(tmp_path)}
    assert problems == {"FEV-1": "RuntimeError: this query was told to fail", "LEP-1": None}
    with pytest.raises(RunError, match="--python names another"):
        PeerSuite(double, tmp_path / "x", Interpreter("/bin/false"), silent).run(chosen(["FEV-1"]))
    with pytest.raises(InputError, match="Known: double"):
        PeerSuite(replace(double, peer="nobody"), tmp_path, Interpreter(), silent)
    assert {"double", "transformers", "vllm"} <= set(peer_names())


def test_a_query_that_takes_too_long_is_given_up(double: PeerSettings, tmp_path: Path) -> None:
    settings = replace(double, settings={"sleep_on": "FEV-1"})
    how = Interpreter(query_seconds=0.5)
    PeerSuite(settings, tmp_path, how, silent).run(chosen(["FEV-1", "LEP-1"]))
    problems = {record.query: record.problem for record in read_records(tmp_path)}
    assert problems == {"FEV-1": "TooLong: given up after 0.5 s", "LEP-1": None}


def test_a_peer_is_ended_in_time_and_keeps_what_it_has(
    double: PeerSettings, tmp_path: Path
) -> None:
    settings = replace(double, settings={"sleep_on": "FEV-1"})
    said: list[str] = []
    began = time.monotonic()
    suite = PeerSuite(settings, tmp_path, Interpreter(seconds=10.0), said.append)
    suite.run(chosen(["LEP-1", "FEV-1", "FEV-10"]))
    assert time.monotonic() - began < 30.0
    assert [record.query for record in read_records(tmp_path)] == ["LEP-1"]
    assert said[-1] == "Ended after 10 s without FEV-1, FEV-10."


def test_a_peer_gets_its_own_packages_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert "PYTHONPATH" not in Interpreter().environment
    assert Interpreter(path="/theirs").environment["PYTHONPATH"] == "/theirs"


def test_transformers_says_what_covey_says(double: PeerSettings, tmp_path: Path) -> None:
    queries = chosen(["BIO-2", "FEV-11"])
    Suite(Settings(model=double.model, scale=0.0), tmp_path, silent).run(queries)
    settings = replace(double, peer="transformers", label="transformers", settings={"batch": 4})
    PeerSuite(settings, tmp_path, Interpreter(), silent).run(queries)
    names = ("covey", "transformers")
    files = [
        {plan.id: tmp_path / "answers" / f"{name}.{plan.id}.npz" for plan in queries}
        for name in names
    ]
    found = agreement_of(*files)
    assert (sum(found.prompts), found.labelled) == (30, 8)
    assert sum(found.equal) == 30 and found.same_label == 8
    margins = []
    for side in files:
        with np.load(side["BIO-2"]) as said:
            order = np.lexsort(said["rows0"].T)
            margins.append(said["scores0"][order, 0])
    assert np.abs(margins[0] - margins[1]).max() < 1e-3
    assert margins[0].std() > 0.01  # a small random model tells its prompts apart


def test_a_peer_that_plans_gets_tables_prompts_and_the_whole_truth(tmp_path: Path) -> None:
    truth = plant(tokens().corpus)
    write_query(tmp_path, QUERIES["FEV-10"], tokens(), truth)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["unsupported"] is None
    assert [each["name"] for each in plan["filters"]] == ["F11", "F13"]
    (join,) = plan["joins"]
    assert join["on"] == [["c.evidence_wiki_url", "e.id"]]
    decoded = [tokens().encoder.decode(ids) for ids in (*join["instructions"], *join["headings"])]
    assert decoded[0].startswith("\n\n(The document above is DOCUMENT {0}.)")
    assert decoded[1].startswith("\n\n(The document above is DOCUMENT {1}.)")
    assert decoded[2:] == ["\n\nDOCUMENT {1}:\n", "\n\nDOCUMENT {0}:\n"]
    with np.load(tmp_path / "truth.npz") as arrays:
        assert (arrays["SUPPORT"] == truth.judged["SUPPORT"]).all()
        assert arrays["F11"].shape == (len(tokens().corpus.tables["claims"]),)
    with pa.memory_map(str(tmp_path / "tables" / "claims.arrow")) as file:
        claims = pa.ipc.open_file(file).read_all()
    assert claims.equals(tokens().corpus.tables["claims"])
    write_query(tmp_path, QUERIES["AGENT-4"], tokens(), truth)
    assert json.loads((tmp_path / "plan.json").read_text())["unsupported"] == "classify or inlist"
