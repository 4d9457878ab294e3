"""The figures of a report, from records alone."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from suite.queries import QUERIES
from suite.records import Record


@dataclass(frozen=True, slots=True)
class Row:
    """One query on one engine.

    Attributes:
        query, dataset, engine: which.
        computes: whether a model did the work; a planted one only runs plan and executor.
        runs: repetitions.
        seconds: median; None where it did not run.
        low, high: fastest and slowest repetition.
        start_seconds: before the first query.
        requested, fresh, minimum: tokens; requested and minimum are the query's own.
        recomputed_share: of the fresh tokens, those above the least for the prompts asked.
        tokens_per_minute: requested tokens a minute.
        sol_seconds, sol_ratio: roofline time of the minimum, and seconds over it.
        device_seconds, host_seconds, other_seconds: parts of the median run.
        idle_share: time in which the device had nothing to do.
        peak_bytes: of memory.
        dollars: of one run.
        rows: of the result.
        rows_equal: whether rows equal DuckDB's.
        problem: why it did not run.
        scale: scale factor of the tables, 0 for the smoke size.
        device: the GPU, else what the system is.
        prompts: answered.
        asked_seconds: until the model had answered all; None where that was not told apart.
        warm_seconds: of the queries that were run before any was measured.
        us_per_token: microseconds a fresh token.
        failed: prompts without an answer.
    """

    query: str
    dataset: str
    engine: str
    computes: bool
    runs: int
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    start_seconds: float | None = None
    requested: int | None = None
    fresh: int | None = None
    minimum: int | None = None
    recomputed_share: float | None = None
    tokens_per_minute: float | None = None
    sol_seconds: float | None = None
    sol_ratio: float | None = None
    device_seconds: float | None = None
    host_seconds: float | None = None
    other_seconds: float | None = None
    idle_share: float | None = None
    peak_bytes: int | None = None
    dollars: float | None = None
    rows: int | None = None
    rows_equal: bool | None = None
    problem: str | None = None
    scale: float | None = None
    device: str | None = None
    prompts: int | None = None
    asked_seconds: float | None = None
    warm_seconds: float | None = None
    us_per_token: float | None = None
    failed: int | None = None


def summarise(records: Iterable[Record]) -> list[Row]:
    """One row a record, in the order of the queries and then of engines' names."""
    order = list(QUERIES)
    return sorted(
        (_row(record) for record in records),
        key=lambda row: (order.index(row.query), row.engine),
    )


def _row(record: Record) -> Row:
    dataset = QUERIES[record.query].dataset
    computes = record.settings.get("model") != "planted"
    scale = record.settings.get("scale")
    device = record.environment.get("gpu") or record.environment.get("system")
    if not record.runs:
        return Row(
            record.query,
            dataset,
            record.engine,
            computes,
            0,
            problem=record.problem,
            scale=scale,
            device=device,
        )
    times = [run.seconds for run in record.runs]
    seconds = statistics.median_low(times)
    run = record.runs[times.index(seconds)]
    minimum = record.minimum
    recomputed = None
    # A planner may ask other prompts than the query's usual order does: those count here.
    least = minimum if run.minimum is None else run.minimum
    if run.fresh and least is not None:
        recomputed = (run.fresh - least) / run.fresh
    busy, host = run.device_seconds, run.host_seconds
    price = record.price_per_hour
    return Row(
        record.query,
        dataset,
        record.engine,
        computes,
        len(times),
        seconds,
        min(times),
        max(times),
        record.start_seconds,
        record.requested,
        run.fresh,
        minimum,
        recomputed,
        60.0 * record.requested / seconds if record.requested and computes else None,
        record.sol_seconds,
        seconds / record.sol_seconds if record.sol_seconds else None,
        busy,
        host,
        None if busy is None or host is None else max(seconds - busy - host, 0.0),
        None if busy is None else max(0.0, 1.0 - busy / seconds),
        run.peak_bytes,
        None if price is None else seconds / 3600.0 * price,
        run.rows,
        record.rows_equal,
        scale=scale,
        device=device,
        prompts=run.prompts,
        asked_seconds=run.asked_seconds,
        warm_seconds=record.warm_seconds,
        us_per_token=1e6 * seconds / run.fresh if run.fresh and computes else None,
        failed=run.failed,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return statistics.geometric_mean(values)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All rows with all figures."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(asdict(row))
