"""report.md from records: what ran, what was measured, and how far it is from the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from suite.highlights import sections
from suite.plots import draw
from suite.records import Record, read_records
from suite.summary import Row, geometric_mean, summarise, write_csv


def write_report(folder: Path, *, plots: bool = True) -> Path:
    """Write report.md, results.csv and, unless told otherwise, plots into a results folder.

    Raises:
        InputError: there are no records, one is damaged, or matplotlib is not installed.
    """
    records = read_records(folder)
    rows = summarise(records)
    write_csv(folder / "results.csv", rows)
    if plots:
        draw(folder / "plots", rows)
    drawn = sorted((folder / "plots").glob("*.png"))
    path = folder / "report.md"
    path.write_text(report_text(records, rows, drawn), encoding="utf-8")
    return path


def report_text(records: Sequence[Record], rows: Sequence[Row], plots: Sequence[Path]) -> str:
    """The report as Markdown."""
    parts = [
        "# Benchmark report",
        _setting(records),
        "## Per query",
        _HOW_TO_READ,
        _query_table(rows),
        "## Engines side by side",
        _side_by_side(rows),
        *sections(rows),
    ]
    problems = [row for row in rows if row.problem is not None]
    if problems:
        parts.append("## What did not run")
        parts += [f"- {row.query}, {row.engine}: {row.problem}" for row in problems]
    failed = [row for row in rows if row.failed]
    if failed:
        parts.append("## Prompts without an answer")
        parts += [f"- {row.query}, {row.engine}: {row.failed:,}" for row in failed]
    if plots:
        parts.append("## Plots")
        parts += [f"![{path.stem}](plots/{path.name})" for path in plots]
    return "\n\n".join(parts) + "\n"


_HOW_TO_READ = (
    "Seconds are the median repetition, with the fastest and slowest where there are several;"
    " start-up is apart. Requested tokens are the full lengths of all prompts, fresh ones were"
    " computed, and the minimum is the least that would do; it and requested tokens follow from"
    " the planted truth and are the same for all engines of a tokenizer. Recomputed is the share"
    " of fresh tokens above the least for the prompts that the engine asked, which a planner"
    " may choose in another order. A planted model computes nothing: its seconds are the"
    " planner's and executor's alone. SoL is the roofline time of the minimum at the"
    " datasheet's peaks; x SoL is seconds over it. A dash is what the engine does not tell. Scale 0"
    " is the smoke size."
)


def _setting(records: Sequence[Record]) -> str:
    lines = [
        "| engine | settings | start, s | machine | limits | versions | commit |",
        "|---|---|--:|---|---|---|---|",
    ]
    seen = set()
    for record in records:
        settings = ", ".join(f"{name} {value}" for name, value in record.settings.items())
        where = record.environment
        machine = f"{where.get('gpu') or where.get('system')}, {where.get('cpus')} cores"
        versions = ", ".join(f"{k} {v}" for k, v in where.get("packages", {}).items())
        commit = (where.get("commit") or "unknown")[:10]
        changed = " with changes" if where.get("changed") else ""
        limits = record.limits or {}
        sizes = ", ".join(f"{name} {limits[name]:,}" for name in ("budget", "slots") if limits)
        # Parts of one run differ in when they started.
        key = (record.engine, settings, machine, sizes, versions, commit, changed)
        if key not in seen:
            seen.add(key)
            lines.append(
                f"| {record.engine} | {settings} | {_start(record)} | {machine} | {sizes or '-'} |"
                f" {versions} | {commit}{changed} |"
            )
    return "\n".join(lines)


def _start(record: Record) -> str:
    """Seconds to a model that is ready, and of what ran before any query was measured."""
    if record.start_seconds is None:
        return "-"
    warm = "" if record.warm_seconds is None else f" + {record.warm_seconds:.1f} warm-up"
    return f"{record.start_seconds:.1f}{warm}"


def _query_table(rows: Sequence[Row]) -> str:
    lines = [
        "| query | scale | engine | seconds | requested | fresh | minimum | recomputed | us/token |"
        " M tokens/min | x SoL | idle | peak | $ | rows |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row.seconds is None:
            continue
        equal = {True: " =", False: " differ", None: ""}[row.rows_equal]
        cells = [
            row.query,
            "-" if row.scale is None else f"{row.scale:g}",
            row.engine,
            _seconds(row),
            _count(row.requested),
            _count(row.fresh),
            _count(row.minimum),
            _share(row.recomputed_share),
            _number(row.us_per_token, 1, 2),
            _number(row.tokens_per_minute, 1e6, 2),
            _number(row.sol_ratio, 1, 2),
            _share(row.idle_share),
            "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.2f} GiB",
            "-" if row.dollars is None else f"{row.dollars:.2g}",
            f"{_count(row.rows)}{equal}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    lines.append("Rows marked = were compared with DuckDB's under the planted truth and are equal.")
    return "\n".join(lines)


def _side_by_side(rows: Sequence[Row]) -> str:
    """Total seconds a family and engine over the queries that all engines ran, and each pair of
    engines over those that both ran.

    A planted model computes nothing, so it stands in no comparison.
    """
    times = {
        (row.query, row.engine): row.seconds
        for row in rows
        if row.computes and row.seconds is not None
    }
    engines = sorted({engine for _, engine in times})
    queries = list(dict.fromkeys(query for query, _ in times))

    def shared(names: Sequence[str]) -> list[str]:
        return [query for query in queries if all((query, name) in times for name in names)]

    lines = _family_table(times, engines, shared(engines)) if len(engines) > 1 else []
    for one, other in combinations(engines, 2):
        ratios = [times[query, other] / times[query, one] for query in shared((one, other))]
        if ratios:
            count = f"{len(ratios)} queries" if len(ratios) > 1 else "one query"
            lines += [
                "",
                f"{other} takes {geometric_mean(ratios):.2f} times as long as {one} over {count}"
                f" (geometric mean; {min(ratios):.2f} to {max(ratios):.2f}).",
            ]
    return "\n".join(lines).strip() or "There is no query that two engines ran."


def _family_table(
    times: Mapping[tuple[str, str], float], engines: Sequence[str], shared: Sequence[str]
) -> list[str]:
    """Lines of Markdown: seconds a family and engine; none where no query is shared."""
    if not shared:
        return []
    lines = [
        f"Over the {len(shared)} queries that every engine ran, in seconds:",
        "",
        f"| family | queries | {' | '.join(engines)} |",
        f"|---|--:|{'--:|' * len(engines)}",
    ]
    families = list(dict.fromkeys(query.rpartition("-")[0] for query in shared))
    for family in (*families, "all"):
        own = [q for q in shared if family in (q.rpartition("-")[0], "all")]
        sums = [sum(times[query, engine] for query in own) for engine in engines]
        lines.append(f"| {family} | {len(own)} | {' | '.join(f'{s:.2f}' for s in sums)} |")
    return lines


def _seconds(row: Row) -> str:
    if row.seconds is None or row.low is None or row.high is None:
        return "-"
    if row.runs == 1:
        return f"{row.seconds:.2f}"
    return f"{row.seconds:.2f} ({row.low:.2f} to {row.high:.2f})"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, unit: float, digits: int) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
