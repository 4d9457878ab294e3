"""Whatever fails while a result is written: the old file stays, and nothing else is left."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from covey.cli import atomic_file
from covey.cli.destination import Destination
from covey.cli.writers import Format
from covey.errors import RunError
from effort import THOROUGH
from faults.injector import Faulty, Steps

ROWS = pa.table({"n": range(500), "s": [f"row {i}" for i in range(500)]})
FAULTS: tuple[Callable[[], BaseException], ...] = (
    lambda: OSError(errno.ENOSPC, "No space left on device"),
    lambda: OSError(errno.EIO, "Input/output error"),
    lambda: KeyboardInterrupt(),
)


def write(form: Format, path: Path, steps: Steps) -> None:
    """Write a result whose file, and what is done with it at the end, fails at a step."""
    opened = atomic_file._open_partial

    def faulty(target: Path) -> tuple[BinaryIO, Path]:
        file, partial = opened(target)
        return Faulty(file, steps), partial  # type: ignore[return-value]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic_file, "_open_partial", faulty)
        for owner, name in ((os, "fsync"), (shutil, "copymode"), (Path, "replace")):
            real = getattr(owner, name)
            patch.setattr(
                owner, name, lambda *given, _name=name, _real=real: steps.take(_name, _real, *given)
            )
        Destination(form, path).write(ROWS.to_batches(max_chunksize=100))


@pytest.mark.fuzz
@pytest.mark.parametrize("form", Format)
def test_every_write_may_fail(form: Format, tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    clean = Steps()
    write(form, path, clean)
    whole = path.read_bytes()
    assert clean.names[-3:] == ["fsync", "copymode", "replace"] and clean.taken > 5
    stride = 1 if THOROUGH else max(1, clean.taken // 15)
    for step in {*range(0, clean.taken, stride), *range(clean.taken - 4, clean.taken)}:
        path.write_text("old")
        steps = Steps(step, FAULTS[step % len(FAULTS)])
        with pytest.raises((RunError, KeyboardInterrupt)):
            write(form, path, steps)
        assert path.read_text() == "old", steps.names
        assert list(tmp_path.iterdir()) == [path], steps.names
    write(form, path, Steps())
    assert path.read_bytes() == whole
