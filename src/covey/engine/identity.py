"""The fingerprint that a model had when it was last loaded, known before it is loaded again.

With it stored answers are found without the model, so that it must never be that of other
files. A record is found by each file's name, size, place on the disk and times of change,
that of its entry included, which no program can set; by the versions of what computes; by the
layout and the device. Files that changed while they were loaded, or so shortly before that a
clock may not tell a second change, are not recorded.
"""

from __future__ import annotations

import hashlib
import time
from importlib import metadata
from pathlib import Path

from covey.hardware.paths import cache_folder, write_whole

# A change shortly after another may leave the times as they are: file systems count in ticks,
# some of them two seconds long.
_SETTLED_SECONDS = 3.0
_PACKAGES = ("covey", "torch", "triton", "fa3-fwd", "tokenizers", "gguf", "numpy")


def file_signature(path: Path) -> str | None:
    """What tells the state of a model's files; None where it cannot be told.

    Args:
        path: a file, or a folder of files.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [(file.name, file.stat()) for file in files]
    except OSError:
        return None
    lines = [
        f"{name!r} {s.st_size} {s.st_dev} {s.st_ino} {s.st_mtime_ns} {s.st_ctime_ns}"
        for name, s in states
    ]
    return "\n".join([str(path.resolve()), *lines])


def load_fingerprint(path: Path, layout: str, device: str) -> str | None:
    """The fingerprint of a model's files, None where they were not loaded as they are.

    Args:
        path: a file, or a folder of files.
        layout: name of the prompt layout, and of what may cost exactness besides.
        device: its name.
    """
    state = file_signature(path)
    if state is None:
        return None
    try:
        return _record(state, layout, device).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def save_fingerprint(
    path: Path, before: str | None, layout: str, device: str, fingerprint: str
) -> None:
    """Keep a fingerprint for `load_fingerprint`; where the folder cannot be written it is lost.

    Args:
        path, layout, device: as for `load_fingerprint`.
        before: the files' `file_signature` before they were loaded.
        fingerprint: what they have.
    """
    if before is not None and before == file_signature(path) and _is_settled(path):
        write_whole(_record(before, layout, device), fingerprint.encode())


def _is_settled(path: Path) -> bool:
    try:
        states = [file.stat() for file in (path.iterdir() if path.is_dir() else [path])]
    except OSError:  # a file has gone
        return False
    newest = max((max(state.st_mtime, state.st_ctime) for state in states), default=0)
    return newest < time.time() - _SETTLED_SECONDS


def _record(state: str, layout: str, device: str) -> Path:
    text = "\n".join([state, layout, device, *map(_version, _PACKAGES)])
    return cache_folder() / "models" / hashlib.sha256(text.encode()).hexdigest()[:24]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
