"""Temporary folders: gone with the connection, and after kill -9 with the next one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import covey
from covey.hardware import paths
from covey.testing import PlantedModel

HOLD = """
import sys, covey
from covey.testing import PlantedModel
con = covey.connect(PlantedModel(lambda question, documents: 0.9), cache=False)
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(folder: Path) -> subprocess.Popen[str]:
    """A process with a connection; its temporary folder looks old."""
    before = set(folder.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    (made,) = set(folder.iterdir()) - before
    (made / "duckdb_temp").write_text("rows")
    os.utime(made, (time.time() - 3600,) * 2)
    return process


def connected() -> covey.Connection:
    return covey.connect(PlantedModel(lambda question, documents: 0.9), cache=False)


def test_folders_of_killed_processes_go_and_those_of_others_stay(folder: Path) -> None:
    killed, alive = hold(folder), hold(folder)
    killed.kill()
    killed.communicate()
    foreign = folder / "covey-scratch-of-a-user"
    foreign.mkdir()
    young = folder / "covey-scratch-young"
    young.mkdir()
    (young / "lock").touch()
    os.utime(foreign, (time.time() - 3600,) * 2)
    assert len(list(folder.iterdir())) == 4
    with connected() as con:
        left = sorted(folder.iterdir())
        assert foreign in left and young in left, "without a lock, or just made"
        assert len(left) == 4, "the killed one went, this connection's came"
        assert con.run("SELECT 1").fetchall() == [(1,)]
    assert len(list(folder.iterdir())) == 3
    assert alive.communicate("\n") and alive.returncode == 0
    assert sorted(folder.iterdir()) == sorted([foreign, young])


def test_a_folder_goes_with_its_connection_from_whatever_thread(folder: Path) -> None:
    con = connected()
    (made,) = folder.iterdir()
    assert made.stat().st_mode & 0o077 == 0
    held = [con]
    del con

    def forget() -> None:
        assert held[0].run("SELECT 1").fetchall() == [(1,)]
        held.clear()
        gc.collect()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(forget).result(20)
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = hold(folder)
    killed.kill()
    killed.communicate()
    owner = os.getuid()
    monkeypatch.setattr(paths.os, "getuid", lambda: owner + 1)
    paths.clear_scratch()
    assert len(list(folder.iterdir())) == 1
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    paths.clear_scratch()
    assert not list(folder.iterdir())
