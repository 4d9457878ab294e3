"""Fixtures of the command-line tests."""

from __future__ import annotations

import pytest
from commandline import CommandLine


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("COVEY_TRACEBACK", raising=False)
    return CommandLine(monkeypatch)
