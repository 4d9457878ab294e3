"""A model whose answers are all stored is not loaded; a changed one is never taken for it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.engine import identity, loaded
from covey.engine.identity import file_signature, load_fingerprint, save_fingerprint
from models.tiny import make_model, write_folder

QUERY = "SELECT id, AI.SCORE(PROMPT('Refund? {0}', s)) AS p FROM t ORDER BY id"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a test are always new."""
    monkeypatch.setattr(identity, "_SETTLED_SECONDS", -1.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    theirs = make_model("llama", tied=True, max_position_embeddings=200)
    return write_folder(tmp_path_factory.mktemp("tiny"), theirs)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models that were loaded."""
    found: list[str] = []
    real = loaded.load_engine

    def load_engine(name: str, *rest: object) -> object:
        found.append(name)
        return real(name, *rest)

    monkeypatch.setattr(loaded, "load_engine", load_engine)
    return found


def run(folder: Path, rows: int = 6) -> tuple[list[object], covey.Connection]:
    con = covey.connect(folder, progress=False)
    con.register("t", pa.table({"id": range(rows), "s": [f"ticket {i}" for i in range(rows)]}))
    done = con.run(QUERY)
    con.report = done.report
    return done.fetchall(), con


def test_a_second_run_does_not_load_the_model(folder: Path, loads: list[str], settled: None):
    rows, first = run(folder)
    assert len(loads) == 1 and first.report.model == "model"
    again, second = run(folder)
    assert again == rows
    assert len(loads) == 1, "every answer was stored"
    assert second.report.model is None and second.report.load_seconds == 0
    assert second.report.operators[0].stored == 6
    more, third = run(folder, rows=8)
    assert len(loads) == 2 and more[:6] == rows
    assert (third.report.operators[0].stored, third.report.operators[0].prompts) == (6, 2)


def rewritten(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    rewritten(other)
    other.replace(path)


def removed(path: Path) -> None:
    path.unlink()


def joined(path: Path) -> None:
    path.with_name("added.json").write_text("{}")


@pytest.mark.parametrize("change", [rewritten, replaced, removed, joined])
def test_files_that_changed_are_not_known(
    tmp_path: Path, change: Callable[[Path], None], settled: None
) -> None:
    """Neither the size nor the time of change says so: both are as they were."""
    folder = tmp_path / "m"
    folder.mkdir()
    file = folder / "model.safetensors"
    file.write_bytes(b"weights")
    save_fingerprint(folder, file_signature(folder), "layout", "cpu", "fingerprint")
    assert load_fingerprint(folder, "layout", "cpu") == "fingerprint"
    assert load_fingerprint(folder, "other", "cpu") is None
    assert load_fingerprint(folder, "layout", "gpu") is None
    change(file)
    assert load_fingerprint(folder, "layout", "cpu") is None


def test_files_that_change_while_they_are_loaded_are_not_recorded(
    tmp_path: Path, settled: None
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"weights")
    before = file_signature(file)
    rewritten(file)
    save_fingerprint(file, before, "layout", "cpu", "fingerprint")
    assert load_fingerprint(file, "layout", "cpu") is None


def test_files_that_changed_just_now_are_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"weights")
    save_fingerprint(file, file_signature(file), "layout", "cpu", "fingerprint")
    assert load_fingerprint(file, "layout", "cpu") is None
    now = time.time()
    monkeypatch.setattr(identity.time, "time", lambda: now + 60)
    save_fingerprint(file, file_signature(file), "layout", "cpu", "fingerprint")
    assert load_fingerprint(file, "layout", "cpu") == "fingerprint"
    monkeypatch.setattr(identity.metadata, "version", lambda package: "of tomorrow")
    assert load_fingerprint(file, "layout", "cpu") is None, "other code may compute otherwise"


def test_a_model_that_is_loaded_and_differs_from_its_record_stops_the_run(
    folder: Path, loads: list[str], settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder)
    real = loaded.load_engine

    def other(*arguments: object) -> object:
        engine = real(*arguments)
        engine.fingerprint = "of another kernel"
        return engine

    monkeypatch.setattr(loaded, "load_engine", other)
    with pytest.raises(covey.RunError, match="Run the query again"):
        run(folder, rows=8)
    _, con = run(folder, rows=8)
    assert con.report.operators[0].stored == 0
