"""A command line whose model is planted: everything is real but the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

import covey
from covey.testing import PlantedModel

Answer = Callable[[str, tuple[str, ...]], float | None]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class CommandLine:
    """Runs `covey` in this process, its default model replaced by a planted one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def plant(
        self, answer: Answer, instead_of: str | None = None, fingerprint: str | None = None
    ) -> None:
        """Let connections to the model of a name, or that name none, use `answer`.

        With a fingerprint, answers are kept between runs.
        """
        connect = covey.connect

        def planted(model: str | None = None, **options: Any) -> object:
            if model != instead_of:
                return connect(model, **options)
            return connect(PlantedModel(answer, fingerprint=fingerprint), **options)

        self._monkeypatch.setattr(covey, "connect", planted)

    def __call__(self, *arguments: str, stdin: str | None = None) -> Ended:
        from covey.cli.app import app

        result = CliRunner().invoke(app, list(arguments), input=stdin)
        assert "Traceback" not in result.output
        return Ended(result.exit_code, result.stdout, result.stderr)
