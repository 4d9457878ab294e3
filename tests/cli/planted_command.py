"""The `covey` script in a process of its own, its default model replaced by a slow planted one."""

from __future__ import annotations

import sys
import time
from typing import Any

import covey
from covey.cli.main import main
from covey.testing import PlantedModel, planted

connect = covey.connect
planted.PROMPTS_A_BATCH = 10


def answer(question: str, documents: tuple[str, ...]) -> float:
    """TRUE, after a moment; the first says that the model is at work."""
    if documents and documents[0].endswith(" 15"):
        print("asked", file=sys.stderr, flush=True)
    time.sleep(0.01)
    return 1.0


def slow(model: str | None = None, **options: Any) -> covey.Connection:
    """As `covey.connect`."""
    return connect(PlantedModel(answer, fingerprint="slow"), **options)


if __name__ == "__main__":
    covey.connect = slow
    main()
