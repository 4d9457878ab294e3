"""Queries on a device that only waits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import idle
from bench.corpora import write_checkpoint


def test_a_query_waits_for_its_tokens_and_gives_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    assert idle.main([str(checkpoint), "IMDB-4", "--scale", "0"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    found = re.fullmatch(
        r"IMDB-4 .* s, idle .*%, ([\d,]+) tokens in (\d+) batches, (\d+) rows", first
    )
    assert found is not None and all(int(n.replace(",", "")) > 0 for n in found.groups())
    assert lines[-1].endswith("s behind the last")
