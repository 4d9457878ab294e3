"""Plots of a report, as PNG and SVG. Needs matplotlib: pip install 'covey[bench]'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from covey.errors import InputError
from suite.summary import Row

_PARTS = ("device", "packing", "rest")
_WIDTH = 12.0


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Draw every plot that the rows have figures for; returns the files.

    Raises:
        InputError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise InputError(
            "Plots need matplotlib: pip install 'covey[bench]', or leave them out: --no-plots."
        )
    import matplotlib

    matplotlib.use("Agg")  # no window, wherever this runs
    matplotlib.rcParams["svg.hashsalt"] = "covey"  # equal figures are equal files
    ran = [row for row in rows if row.seconds is not None and row.computes]
    plots: tuple[tuple[str, Callable[[Any, list[Row]], bool]], ...] = (
        ("latency", _latency),
        ("throughput", _throughput),
        ("parts", _parts),
        ("recomputed", _recomputed),
    )
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, plot in plots:
        found += _save(folder / name, plot, ran)
    return found


def _save(path: Path, plot: Callable[[Any, list[Row]], bool], rows: list[Row]) -> list[Path]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(_WIDTH, 5.0), layout="constrained")
    files = []
    if plot(axes, rows):
        for kind, metadata in ((".png", None), (".svg", {"Date": None})):
            file = path.with_suffix(kind)
            figure.savefig(file, dpi=120, metadata=metadata)
            files.append(file)
    pyplot.close(figure)
    return files


def _engines(rows: Sequence[Row]) -> list[str]:
    return sorted({row.engine for row in rows})


def _queries(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.query for row in rows))


def _latency(axes: Any, rows: list[Row]) -> bool:
    """Seconds a query on a log axis, a bar an engine, a mark at each one's speed of light."""
    queries, engines = _queries(rows), _engines(rows)
    width = 0.8 / max(len(engines), 1)
    for number, engine in enumerate(engines):
        own = [row for row in rows if row.engine == engine]
        places = [queries.index(row.query) + width * (number + 0.5) - 0.4 for row in own]
        low = [(row.seconds or 0) - (row.low or 0) for row in own]
        high = [(row.high or 0) - (row.seconds or 0) for row in own]
        axes.bar(places, [row.seconds for row in own], width, yerr=[low, high], label=engine)
        marked = [(x, row.sol_seconds) for x, row in zip(places, own, strict=True)]
        marked = [(x, y) for x, y in marked if y]
        if marked:
            label = "speed of light" if number == 0 else None
            axes.scatter(*zip(*marked, strict=True), marker="_", color="black", label=label)
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    _label_queries(axes, queries)
    return bool(rows)


def _throughput(axes: Any, rows: list[Row]) -> bool:
    """Requested tokens a minute by family."""
    engines = _engines(rows)
    families = list(dict.fromkeys(row.dataset for row in rows))
    width = 0.8 / max(len(engines), 1)
    for number, engine in enumerate(engines):
        rates = []
        for family in families:
            own = [row for row in rows if (row.engine, row.dataset) == (engine, family)]
            seconds = sum(row.seconds or 0.0 for row in own)
            tokens = sum(row.requested or 0 for row in own)
            rates.append(60.0 * tokens / seconds if seconds else 0.0)
        places = [i + width * (number + 0.5) - 0.4 for i in range(len(families))]
        axes.bar(places, rates, width, label=engine)
    axes.set_xticks(range(len(families)), families)
    axes.set_yscale("log")
    axes.set_ylabel("requested tokens a minute")
    axes.legend()
    return any(row.requested for row in rows)


def _parts(axes: Any, rows: list[Row]) -> bool:
    """Where the time of each query goes, as shares."""
    own = [row for row in rows if row.device_seconds is not None and row.other_seconds is not None]
    if not own:
        return False
    names = [f"{row.query} {row.engine}" for row in own]
    below = [0.0] * len(own)
    for part in _PARTS:
        shares = [_part(row, part) / (row.seconds or 1.0) for row in own]
        axes.bar(names, shares, bottom=below, label=part)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    axes.set_ylabel("share of the time")
    axes.tick_params(axis="x", rotation=90)
    axes.legend()
    return True


def _part(row: Row, part: str) -> float:
    values = {"device": row.device_seconds, "packing": row.host_seconds, "rest": row.other_seconds}
    return values[part] or 0.0


def _recomputed(axes: Any, rows: list[Row]) -> bool:
    """Recomputed tokens of each query, as a share of what was computed."""
    own = [row for row in rows if row.recomputed_share is not None]
    queries = _queries(own)
    for engine in _engines(own):
        mine = [row for row in own if row.engine == engine]
        places = [queries.index(row.query) for row in mine]
        axes.plot(places, [100.0 * (row.recomputed_share or 0) for row in mine], "o", label=engine)
    axes.set_ylabel("recomputed, % of fresh tokens")
    _label_queries(axes, queries)
    return bool(own)


def _label_queries(axes: Any, queries: list[str]) -> None:
    axes.set_xticks(range(len(queries)), queries, rotation=90)
    axes.grid(axis="y", alpha=0.3)
    if queries:
        axes.legend()
