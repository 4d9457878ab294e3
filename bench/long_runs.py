"""Long runs: a filter over a million rows, and a million look-ups in the answer store.

    python bench/long_runs.py [--rows 1000000]

The model is planted, so what is measured is everything else: reading, planning, asking,
keeping. Memory is what the process itself holds (anonymous pages: files that are mapped
belong to the system's cache), above what it held before the query. CPU seconds count all
threads of the process; on a machine that others use, they are the figure to look at.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import covey
from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore, NewAnswers, StoredQuestion
from covey.testing import PlantedModel

TEXT = "Ticket {}: my kettle broke after a week and I would like to know what you can do about it."
QUERY = "SELECT id FROM '{}' WHERE AI.IF(PROMPT('Is the customer asking for a refund? {{0}}', s))"
ROWS_A_GROUP = 50_000


@dataclass
class Measured:
    """What a block took: wall and CPU seconds, and bytes above the start at most."""

    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0


@contextmanager
def measured() -> Iterator[Measured]:
    """Measure a block; memory is looked at 20 times a second."""
    found, over, start = Measured(), threading.Event(), anonymous_bytes()

    def watch() -> None:
        while not over.wait(0.05):
            found.memory = max(found.memory, anonymous_bytes() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found.seconds, found.cpu = time.perf_counter() - wall, time.process_time() - cpu
        over.set()
        watcher.join()


def anonymous_bytes() -> int:
    """Bytes that the process holds and no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("This system does not say what a process holds (/proc/self/status).")


def planted() -> PlantedModel:
    """TRUE for every other document. It keeps no record of what it was asked."""
    model = PlantedModel(
        lambda question, documents: 0.9 if len(documents[0]) % 2 else 0.1, fingerprint="bench"
    )
    model.calls = deque(maxlen=0)  # type: ignore[assignment]
    return model


def write_rows(path: Path, rows: int) -> None:
    """A Parquet file of short texts."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, ROWS_A_GROUP):
            ids = range(start, min(start + ROWS_A_GROUP, rows))
            writer.write_table(pa.table({"id": ids, "s": [TEXT.format(i) for i in ids]}, schema))


def show(name: str, rows: int, found: Measured) -> None:
    print(
        f"{name:34} {found.seconds:6.1f} s  {found.cpu:6.1f} CPU s  "
        f"{rows / found.seconds:10,.0f} rows/s  {rows / found.cpu:10,.0f} rows/CPU s  "
        f"{found.memory / 1e6:6.0f} MB more"
    )


def filters(folder: Path, rows: int) -> None:
    """The filter without a store, with an empty one, with a full one, and into a file."""
    path = folder / "tickets.parquet"
    write_rows(path, rows)
    query = QUERY.format(path)
    with covey.connect(planted(), cache=False, progress=False) as con:
        con.run(f"SELECT id FROM '{path}' LIMIT 1")  # what is imported once
    for name, cache in (
        ("filter, answers not kept", False),
        ("filter, answers kept", folder / "store"),
        ("the same again: nothing is asked", folder / "store"),
    ):
        with covey.connect(planted(), cache=cache, progress=False) as con:
            with measured() as found:
                count = sum(batch.num_rows for batch in con.sql(query).batches())
            show(f"{name}", rows, found)
        assert 0 < count < rows
    with covey.connect(planted(), cache=False, progress=False) as con, measured() as found:
        con.run(f"COPY ({query}) TO '{folder / 'out.parquet'}'")
    show("COPY of the filter to a file", rows, found)


def look_ups(folder: Path, pairs: int) -> None:
    """A store of five times as many answers, and look-ups of which half are found."""
    store = AnswerStore(CacheOptions(folder / "pairs"))
    question = StoredQuestion("pairs", "bench", "bench", "judge", "? {0} {1}", ())
    random = np.random.default_rng(1)
    known = random.integers(0, 2**63, (5, pairs, 2)).astype(np.uint64)
    with measured() as found:
        for keys in known:
            store.add([NewAnswers(question, keys, random.normal(size=(pairs, 1)))])
    show(f"{5 * pairs:,} answers written", 5 * pairs, found)
    new = random.integers(0, 2**63, (pairs // 2, 2)).astype(np.uint64)
    with measured() as found:
        hit, _ = store.find("pairs", np.concatenate([known[2][: pairs // 2], new]), 1)
    show(f"{pairs:,} pairs looked up among them", pairs, found)
    assert hit.sum() == pairs // 2
    print(f"the file holds {store.summary()['bytes'] / (5 * pairs):.1f} bytes an answer")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    rows = arguments.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="covey-bench-") as folder:
        filters(Path(folder), rows)
        look_ups(Path(folder), rows)


if __name__ == "__main__":
    main()
