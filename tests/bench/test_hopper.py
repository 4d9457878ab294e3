"""The measurements on a GPU, as far as a processor can run them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.corpora import write_checkpoint
from hopper import shapes
from hopper.__main__ import COMMANDS, main
from hopper.margins import compare, print_heading, print_margins
from hopper.workloads import NAMES, Shape, make_shapes

SHAPES = [
    Shape("pairs", "Does {0} name {1}?", [" the story", " the film"], [" music", " pace", " a"]),
    Shape("rows", "Is it long? {0}", [" the story", " the film", " the end"], []),
]


def test_flips_shift_and_prompts_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    default = np.array([2.0, -1.0, 0.5, np.nan, 0.0])
    other = np.array([1.0, 0.5, 0.25, 3.0, 0.0])
    found = compare(default, other)
    assert found["prompts"] == 4 and found["missing"] == 1
    assert found["flips"] == 2500 and found["largest_flipped"] == 1.0
    assert found["mean"] == pytest.approx(2.75 / 4) and found["largest"] == 1.5
    assert found["shift"] == pytest.approx(0.25 / 4)
    assert found["spread"] == pytest.approx(np.std([2.0, -1.0, 0.5, 0.0]))
    nothing = compare(np.array([np.nan]), np.array([1.0]))
    assert nothing["prompts"] == 0 and nothing["flips"] == 0
    print_heading()
    print_margins("rows", found | {"seconds": 1.5, "us_a_token": 7.25})
    heading, line = (text.split() for text in capsys.readouterr().out.splitlines())
    assert heading[:4] == ["seconds", "us/token", "flips", "up"]
    assert line[:5] == ["rows", "1.50", "7.25", "2500", "1.000"]
    assert line[-4:] == ["1", "without", "an", "answer"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_measures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"python bench/hopper {name} " in shown and "--json JSON" in shown
    assert callable(importlib.import_module(f"hopper.{name}").run)


def test_without_a_command_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0 and main(["shape"]) == 2
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_shapes_are_timed_and_their_figures_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    monkeypatch.setattr(shapes, "make_shapes", lambda *_: SHAPES)
    # The roofline of a GPU beside the seconds of a processor, so that this runs here too.
    monkeypatch.setattr(shapes, "DEVICE", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    figures = tmp_path / "figures.json"
    assert main(["shapes", str(folder), "--runs", "1", "--schedules", "--json", str(figures)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith(("pairs ", "rows "))] == ["6", "3"]
    found = json.loads(figures.read_text())["shapes"]
    assert found["pairs"]["prompts"] == 6 and len(found["rows"]["seconds"]) == 1
    assert found["pairs"]["counters"]["fresh_tokens"] > 0
    assert 0 < found["pairs"]["speed_of_light"] < found["pairs"]["seconds"][0]


def test_a_scale_keeps_the_first_documents_of_each_shape(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    small = make_shapes(folder, "join-evidence,filter-traces", 0.05)
    whole = make_shapes(folder, "join-evidence,filter-traces")
    for one, other in zip(small, whole, strict=True):
        assert one.anchors == other.anchors[: len(one.anchors)] and len(one.anchors) > 0
        assert one.partners == other.partners
    assert [len(shape.anchors) for shape in small] == [5, 10]
    assert len(NAMES) == 6
