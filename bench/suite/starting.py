"""Start a peer in its own process and environment, within a limit of time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.errors import RunError

_FOLDER = Path(__file__).parent / "peers"
_POLL_SECONDS = 0.2
# A peer that has answered all may take so long to end before it is made to.
_FAREWELL_SECONDS = 30.0


def peer_names() -> list[str]:
    """The peers that there are scripts for."""
    return sorted(path.stem.removesuffix("_peer") for path in _FOLDER.glob("*_peer.py"))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a peer is started.

    Attributes:
        python: the interpreter of its environment.
        path: a folder of packages for it, instead of an environment; "" for none.
        query_seconds: after which it gives a query up; None for no limit.
        seconds: after which it is ended, counted from its start; None for no limit.
    """

    python: str = sys.executable
    path: str = ""
    query_seconds: float | None = None
    seconds: float | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Its variables: it has its own packages, and none of ours may leak into it."""
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return {**kept, "PYTHONPATH": self.path} if self.path else kept


def run_peer(
    name: str,
    model: Path,
    settings: dict[str, Any],
    how: Interpreter,
    folders: Sequence[Path],
    take: Callable[[Path], None],
) -> list[Path]:
    """Run a peer once over folders of work; see `peers.protocol`.

    Args:
        name: one of `peer_names`.
        model: the checkpoint.
        settings: the peer's own, see its script.
        how: how it is started.
        folders: the work, in the order in which it is done.
        take: called for each folder as soon as its result is there.

    Returns:
        the folders whose results were not there when its time was over.

    Raises:
        RunError: the peer ended before it had answered; its own words are on stderr.
    """
    command = [how.python, str(_FOLDER / f"{name}_peer.py"), "--model", str(model)]
    command += ["--settings", json.dumps(settings)]
    if how.query_seconds is not None:
        command += ["--seconds", str(how.query_seconds)]
    command += [str(folder) for folder in folders]
    for folder in folders:
        (folder / "result.json").unlink(missing_ok=True)
    began = time.monotonic()
    left = list(folders)
    late = False
    with subprocess.Popen(command, env=how.environment, start_new_session=True) as peer:
        try:
            while left and peer.poll() is None and not late:
                time.sleep(_POLL_SECONDS)
                left = _taken(left, take)
                late = how.seconds is not None and time.monotonic() - began > how.seconds
            if not left:
                with suppress(subprocess.TimeoutExpired):
                    peer.wait(_FAREWELL_SECONDS)
        finally:
            _end(peer)
    left = _taken(left, take)
    if left and not late:
        raise RunError(
            f"The peer {name} ended with status {peer.returncode} before it had answered; what it"
            f" said stands above. Its interpreter was {how.python}: --python names another."
        )
    return left


def _taken(folders: Sequence[Path], take: Callable[[Path], None]) -> list[Path]:
    """Take the results that are there; returns the folders that have none."""
    left = []
    for folder in folders:
        if (folder / "result.json").is_file():
            take(folder)
        else:
            left.append(folder)
    return left


def _end(peer: subprocess.Popen[bytes]) -> None:
    """End a peer that still runs, and all that it started: it leads a session of its own."""
    if peer.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(peer.pid, signal.SIGKILL)
