"""Every topic file: rows, refusals and the number of calls; rows are the oracle's."""

from __future__ import annotations

from pathlib import Path

import pytest

from slt.regenerate import rewritten
from slt.runner import failures
from slt.topic import read_topic

TOPICS = sorted(Path(__file__).parent.glob("*.slt"))


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_topic(path: Path) -> None:
    wrong = failures(read_topic(path))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.stem)
def test_expected_rows_are_the_oracles(path: Path) -> None:
    assert rewritten(path) == path.read_text(), "run python tests/slt/regenerate.py and look"
