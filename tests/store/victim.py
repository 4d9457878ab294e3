"""A query that may be killed at any moment: run as a script, see `disturbed`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from pathlib import Path

ROWS = 1500
TEXTS = 1000
FAULT_ROWS = 120
QUERY = (
    "SELECT id, AI.SCORE(PROMPT('How late? {0}', s)) AS late FROM t "
    "WHERE AI.IF(PROMPT('Refund? {0}', s)) ORDER BY id"
)


def answer(question: str, documents: tuple[str, ...]) -> float | None:
    """Some answer, always the same; None for some, which then fail."""
    number = zlib.crc32(repr((question, documents)).encode()) % 1000
    return None if number < 5 else number / 1000


def main(folder: str, seconds: str) -> None:
    """Run the query on a store; print how many prompts were asked, and the rows."""
    import pyarrow as pa

    import covey
    from covey.execution.store import stored_answers
    from covey.testing import PlantedModel, planted

    # Many small commits, so that a kill meets one.
    stored_answers.SECONDS_BETWEEN_WRITES = 0.005
    planted.PROMPTS_A_BATCH = 50

    def slow(question: str, documents: tuple[str, ...]) -> float | None:
        time.sleep(float(seconds))
        return answer(question, documents)

    model = PlantedModel(slow, fingerprint="victim")
    with covey.connect(model, cache=folder, progress=False) as connection:
        texts = [f"ticket {i % TEXTS}" for i in range(ROWS)]
        connection.register("t", pa.table({"id": range(ROWS), "s": texts}))
        print("started", flush=True)
        query = connection.run(QUERY)
        notes = query.report.notes
        print(json.dumps({"asked": len(model.calls), "rows": query.fetchall(), "notes": notes}))


def start(folder: Path, seconds: float = 0.0) -> subprocess.Popen[str]:
    """Run this file, each answer taking some seconds, up to where it begins to ask."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def finish(process: subprocess.Popen[str]) -> tuple[int, list[list[object]]]:
    """Prompts asked, and rows, of a process that is left alone."""
    output, _ = process.communicate()
    assert process.returncode == 0
    ended = json.loads(output)
    return ended["asked"], ended["rows"]


if __name__ == "__main__":
    main(*sys.argv[1:])
