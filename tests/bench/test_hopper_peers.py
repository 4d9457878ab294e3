"""The six shapes as peers' work: the prompts that Covey computes, token for token."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.corpora import write_checkpoint
from covey.engine.local import LocalModel
from covey.prompts.layout import RAW_V1
from hopper import peers
from hopper.__main__ import main
from hopper.workloads import Shape
from suite.peers.protocol import load_work

SHAPES = [
    Shape(
        "few-pairs", "Does {0} name {1}?", [" the story", " the film"], [" music", " pace", " a"]
    ),
    Shape("few-rows", "Is it long? {0}", [" the story", " the film", " the end"], []),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return LocalModel(str(write_checkpoint(tmp_path_factory.mktemp("checkpoint"))))


def test_every_prompt_of_a_shape_is_given(model: LocalModel, tmp_path: Path) -> None:
    places = peers.write_shapes(tmp_path, SHAPES, model, runs=2)
    assert list(places.values()) == ["few-pairs", "few-pairs", "few-rows", "few-rows"]
    (pairs,) = load_work(tmp_path / "few-pairs.1").stages
    (rows,) = load_work(tmp_path / "few-rows.0").stages
    assert (len(pairs), len(rows)) == (6, 3) and not pairs.answers.any()
    question = peers.plan_of(SHAPES[0]).steps[0].predicate.question
    text = model.encoder.decode(pairs.prompt(4))
    parts = "".join(part.text for part in RAW_V1.parts(question))
    assert text.startswith("DOCUMENT:\n the film") and " pace" in text
    assert text.replace(" the film", "").replace(" pace", "") == parts
    plan = json.loads((tmp_path / "few-pairs.0" / "plan.json").read_text())
    assert plan["unsupported"] is None and plan["joins"][0]["name"] == "few-pairs"
    with np.load(tmp_path / "few-pairs.0" / "truth.npz") as truth:
        assert truth["few-pairs"].shape == (2, 3)


def test_a_peer_runs_the_shapes_and_its_figures_are_kept(
    model: LocalModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "make_shapes", lambda *_: SHAPES)
    figures = tmp_path / "figures.json"
    folder = str(model.files.path)
    assert main(["peers", folder, "double", "--json", str(figures)]) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [each.split()[0] for each in shown] == ["shape", "few-pairs", "few-rows"]
    results = json.loads(figures.read_text())["shapes"]
    assert results["few-pairs"][0]["stages"][0]["prompts"] == 6


def test_a_shape_that_failed_says_why() -> None:
    shown = peers.line("join-reviews", {"problem": "TooLong: given up after 60 s"})
    assert shown == "join-reviews    TooLong: given up after 60 s"
