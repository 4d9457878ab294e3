"""The fingerprint that a model had when it was last loaded, for estimates before it is.

It is kept in the user's cache folder by the files, their sizes and times, the layout and the
device. A record that went stale misleads an estimate and nothing else: a run asks the loaded
model.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from covey.hardware.cache import cache_folder, write_whole


def recall(path: Path, layout: str, device: str) -> str | None:
    """The fingerprint of a model's files, None where they were not loaded as they are.

    Args:
        path: a file, or a folder of files.
        layout: name of the prompt layout, and of what may cost exactness besides.
        device: its name.
    """
    try:
        return _record(path, layout, device).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def remember(path: Path, layout: str, device: str, fingerprint: str) -> None:
    """Keep a fingerprint for `recall`; where the folder cannot be written it is lost."""
    try:
        record = _record(path, layout, device)
    except OSError:
        return
    write_whole(record, fingerprint.encode())


def _record(path: Path, layout: str, device: str) -> Path:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    marks = [f"{f.name} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files]
    text = "\n".join([str(path.resolve()), layout, device, *marks])
    return cache_folder() / "models" / hashlib.sha256(text.encode()).hexdigest()[:24]
