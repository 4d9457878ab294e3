"""Sections of a report beyond its tables: what was published, BIO-4, classifications."""

from __future__ import annotations

from collections.abc import Sequence

from suite.plan import Classify
from suite.published import DEVICE, SCALE, SECONDS
from suite.queries import QUERIES
from suite.summary import Row, geometric_mean

_PUBLISHED = (
    f"Published by the benchmark's owners: seconds on {DEVICE} at scale factor {SCALE:g}, Qwen3 4B"
    " FP8, start-up apart, with other texts and other answers than these. Another card and other"
    " work: what the same work takes on the same card stands under *Engines side by side*."
    " Published times end with the model's work; `asked` is ours until then, `seconds` all of it,"
    " DuckDB's rows included. Ratios are published over asked."
)


def sections(rows: Sequence[Row]) -> list[str]:
    """The sections that there are figures for, as Markdown."""
    ran = [row for row in rows if row.computes and row.seconds is not None]
    found: list[str] = []
    for title, text in (
        ("Beside what was published", _beside_published(ran)),
        ("BIO-4", _bio_4(ran)),
        ("Classification", _classification(ran)),
    ):
        if text:
            found += [f"## {title}", text]
    return found


def _beside_published(rows: Sequence[Row]) -> str:
    """Our seconds and the published ones, at the published scale factor alone."""
    own = [row for row in rows if row.scale == SCALE and row.query in SECONDS]
    if not own:
        return ""
    lines = [
        _PUBLISHED,
        "",
        "| query | engine | on | seconds | asked | published, its owners' | ratio |"
        " published, vLLM | ratio |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    ratios: dict[str, list[tuple[float, float]]] = {}
    for row in own:
        asked = _asked(row)
        owners, vllm = SECONDS[row.query]
        ratios.setdefault(row.engine, []).append((owners / asked, vllm / asked))
        lines.append(
            f"| {row.query} | {row.engine} | {row.device} | {row.seconds:.2f} | {asked:.2f} |"
            f" {owners:.2f} | {owners / asked:.2f} | {vllm:.2f} | {vllm / asked:.2f} |"
        )
    for engine, pairs in ratios.items():
        means = [geometric_mean(side) for side in zip(*pairs, strict=True)]
        total = sum(_asked(row) for row in own if row.engine == engine)
        published = [
            sum(SECONDS[row.query][side] for row in own if row.engine == engine) for side in (0, 1)
        ]
        lines += [
            "",
            f"{engine}, {len(pairs)} queries, {total:.1f} s until asked. Published:"
            f" {published[0]:.1f} s for the owners' engine, geometric mean of the ratios"
            f" {means[0]:.2f}; {published[1]:.1f} s for vLLM, {means[1]:.2f}.",
        ]
    return "\n".join(lines)


def _asked(row: Row) -> float:
    return row.asked_seconds or row.seconds or 0.0


def _bio_4(rows: Sequence[Row]) -> str:
    """Requested tokens a minute of the query with the long anchors and many partners."""
    return "\n".join(
        f"- {row.engine} at scale factor {row.scale:g} on {row.device}:"
        f" {row.requested / _asked(row) * 6e-8:.2f} billion requested tokens a minute"
        f" ({row.requested:,} in {_asked(row):.2f} s; {row.prompts:,} prompts)."
        for row in rows
        if row.query == "BIO-4" and row.requested and row.prompts is not None
    )


def _classification(rows: Sequence[Row]) -> str:
    """The queries that give labels."""
    own = [row for row in rows if any(isinstance(s, Classify) for s in QUERIES[row.query].steps)]
    if not own:
        return ""
    lines = [
        "| query | labels of | scale | engine | seconds | spread | prompts | fresh | recomputed |"
        " us/token |",
        "|---|---|--:|---|--:|---|--:|--:|--:|--:|",
    ]
    for row in own:
        steps = [s for s in QUERIES[row.query].steps if isinstance(s, Classify)]
        labels = ", ".join(f"{s.name} ({len(s.predicate.labels)})" for s in steps)
        spread = "-" if row.runs < 2 else f"{row.low:.2f} to {row.high:.2f}"
        cells = [
            row.query,
            labels,
            f"{row.scale:g}",
            row.engine,
            f"{row.seconds:.2f}",
            spread,
            "-" if row.prompts is None else f"{row.prompts:,}",
            "-" if row.fresh is None else f"{row.fresh:,}",
            "-" if row.recomputed_share is None else f"{row.recomputed_share:.1%}",
            "-" if row.us_per_token is None else f"{row.us_per_token:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
