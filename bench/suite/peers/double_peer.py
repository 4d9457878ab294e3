"""A peer without a model: it puts every prompt together and counts it. Tests the protocol."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from protocol import Outcome, Peer, Stage, Work, by_stage, main


class Double(Peer):
    """Says what was planted; a token is fresh the first time its prefix is seen in a stage."""

    name = "double"

    def load(self, model: str, settings: dict[str, Any]) -> dict[str, str]:
        self._fail_on = settings.get("fail_on")
        self._sleep_on = settings.get("sleep_on")
        return {"numpy": np.__version__}

    def run(self, work: Work) -> Outcome:
        if work.query == self._fail_on:
            raise RuntimeError("this query was told to fail")
        if work.query == self._sleep_on:
            time.sleep(60.0)
        return by_stage(work, _ask)


def _ask(stage: Stage) -> tuple[int, np.ndarray]:
    seen: set[tuple[int, ...]] = set()
    for index in range(len(stage)):
        ids = stage.prompt(index)
        seen.update(tuple(ids[:stop]) for stop in range(1, len(ids) + 1))
    if stage.labels:
        said = np.full((len(stage), len(stage.labels)), -1.0)
        said[np.arange(len(stage)), stage.answers] = 0.0
        return len(seen), said
    return len(seen), np.where(stage.answers > 0, 1.0, -1.0)[:, None]


if __name__ == "__main__":
    sys.exit(main(Double()))
