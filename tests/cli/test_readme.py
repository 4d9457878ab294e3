"""The README shows what is true: the demo's own query, and Python that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.cli import demo
from covey.testing import PlantedModel

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_query_on_the_first_screen_is_the_one_the_demo_runs() -> None:
    assert blocks("sql")[0] == demo.shown_query() + "\n"


def test_the_questions_with_figures_are_the_ones_the_demo_measures() -> None:
    rows = re.findall(r"^\| ([A-Z][^|]*\?) \|", README, re.MULTILINE)
    assert rows == [asked.question for asked in demo.QUESTIONS]


def test_the_python_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = covey.connect
    monkeypatch.setattr(covey, "connect", lambda model: connect(PlantedModel(lambda q, d: 0.9)))
    frame = pa.table({"product": ["Lamp", "Lamp", "Rug"], "body": ["a", "b", None]})
    names: dict[str, object] = {"frame": frame}
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), names)
    query = names["query"]
    assert isinstance(query, covey.Query)
    assert query.fetchall() == [("Lamp", 2)]
    assert "AI.IF" in capsys.readouterr().out


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
