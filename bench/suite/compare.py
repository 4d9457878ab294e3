"""Two folders of results, query by query: times, tokens, rows and what the models said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from covey.errors import InputError
from suite.records import Record, read_records
from suite.summary import geometric_mean, summarise

# Upper bounds of |margin| in nats, of the first folder's engine.
MARGIN_BINS = (0.25, 0.5, 1.0, 2.0, 4.0, np.inf)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two models say the same about the same prompts.

    Attributes:
        prompts: judgements that both gave, by bin of `MARGIN_BINS`.
        equal: those with the same sign of the margin.
        labelled: prompts that both gave a label.
        same_label: those with the same one.
    """

    prompts: tuple[int, ...]
    equal: tuple[int, ...]
    labelled: int
    same_label: int


@dataclass(frozen=True, slots=True)
class Side:
    """One engine's results in a folder.

    Attributes:
        folder: where they lie.
        engine: its label.
        name: what tables call it.
        records: its records.
    """

    folder: Path
    engine: str
    name: str
    records: tuple[Record, ...]


def side(named: str) -> Side:
    """The results that `FOLDER` or `FOLDER:ENGINE` names.

    Raises:
        InputError: there are none, one is damaged, or the folder holds several engines.
    """
    path, engine = Path(named), ""
    if not path.is_dir():
        before, _, engine = named.rpartition(":")
        path = Path(before or named)
    records = read_records(path)
    engines = sorted({record.engine for record in records})
    if not engine and len(engines) == 1:
        engine = engines[0]
    if engine not in engines:
        wanted = f"no engine {engine!r}" if engine else "several engines"
        raise InputError(
            f"{path} holds {wanted}: name one of {', '.join(engines)}, as {path}:{engines[0]}."
        )
    own = tuple(record for record in records if record.engine == engine)
    return Side(path, engine, f"{path.name}:{engine}", own)


def comparison(one: Side, other: Side) -> str:
    """Both sides query by query, as Markdown."""
    parts = [
        f"# {one.name} and {other.name}",
        _times(one.records, other.records, (one.name, other.name)),
    ]
    agreement = agreement_of(_answers(one), _answers(other))
    if sum(agreement.prompts) + agreement.labelled:
        parts += ["## Agreement of the models' own answers", _agreement_table(agreement)]
    return "\n\n".join(parts)


def _answers(side: Side) -> dict[str, Path]:
    """The file of each query with what the model itself said."""
    files = (side.folder / "answers").glob(f"{side.engine}.*.npz")
    return {path.name.removeprefix(f"{side.engine}."): path for path in sorted(files)}


def _times(left: Sequence[Record], right: Sequence[Record], names: tuple[str, str]) -> str:
    rows = {row.query: row for row in summarise(left)}
    others = {row.query: row for row in summarise(right)}
    digests = [{r.query: r.runs[0].digest for r in side if r.runs} for side in (left, right)]
    lines = [
        f"| query | {names[0]}, s | {names[1]}, s | ratio | fresh | fresh | rows |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    ratios = []
    for query, row in rows.items():
        mate = others.get(query)
        if mate is None or row.seconds is None or mate.seconds is None:
            continue
        ratios.append(mate.seconds / row.seconds)
        known = [each.get(query) for each in digests]
        rows_told = "-" if None in known else "equal" if known[0] == known[1] else "differ"
        fresh = [f"{n:,}" if n is not None else "-" for n in (row.fresh, mate.fresh)]
        lines.append(
            f"| {query} | {row.seconds:.2f} | {mate.seconds:.2f} | {ratios[-1]:.2f} |"
            f" {fresh[0]} | {fresh[1]} | {rows_told} |"
        )
    if not ratios:
        return "The two have no query in common that both ran."
    lines.append("")
    lines.append(f"Geometric mean of the ratios: {geometric_mean(ratios):.2f}.")
    return "\n".join(lines)


def agreement_of(one: dict[str, Path], other: dict[str, Path]) -> Agreement:
    """Agreement over all prompts that two engines' answers, by query, have in common."""
    bins = len(MARGIN_BINS)
    prompts, equal = np.zeros(bins, dtype=np.int64), np.zeros(bins, dtype=np.int64)
    labelled = same_label = 0
    for query, path in one.items():
        mate = other.get(query)
        if mate is None:
            continue
        left, right = _said(path), _said(mate)
        for question in left.keys() & right.keys():
            first, second = _matched(left[question], right[question])
            if first.shape[1] > 1:
                labelled += len(first)
                same_label += int((first[:, 0] == second[:, 0]).sum())
                continue
            margin, same = np.abs(first[:, 0]), (first[:, 0] > 0) == (second[:, 0] > 0)
            place = np.digitize(margin, MARGIN_BINS[:-1])
            prompts += np.bincount(place, minlength=bins)
            equal += np.bincount(place[same], minlength=bins)
    return Agreement(tuple(prompts.tolist()), tuple(equal.tolist()), labelled, same_label)


def _said(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and scores of each question in a file of answers.

    Scores are (n, 1) margins, or (n, 2) a label's number and its log-probability.
    """
    with np.load(path) as file:
        return {
            str(file[f"question{i}"]): (file[f"rows{i}"], file[f"scores{i}"])
            for i in range(len(file.files) // 3)
        }


def _matched(
    left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(n, width) scores of both engines for the prompts that both answered."""
    mates = {tuple(row): i for i, row in enumerate(right[0].tolist())}
    pairs = [(i, mates.get(tuple(row))) for i, row in enumerate(left[0].tolist())]
    own = np.array([i for i, j in pairs if j is not None], dtype=np.int64)
    other = np.array([j for _, j in pairs if j is not None], dtype=np.int64)
    first, second = left[1][own], right[1][other]
    usable = ~(np.isnan(first).any(1) | np.isnan(second).any(1))
    return first[usable], second[usable]


def _agreement_table(found: Agreement) -> str:
    lines = ["| margin of the first, nats | prompts | agree |", "|---|--:|--:|"]
    low = 0.0
    for high, prompts, equal in zip(MARGIN_BINS, found.prompts, found.equal, strict=True):
        share = f"{equal / prompts:.2%}" if prompts else "-"
        bounds = f"over {low:g}" if np.isinf(high) else f"{low:g} to {high:g}"
        lines.append(f"| {bounds} | {prompts:,} | {share} |")
        low = high
    total = sum(found.equal) / max(sum(found.prompts), 1)
    lines.append(f"| all | {sum(found.prompts):,} | {total:.2%} |")
    if found.labelled:
        share = found.same_label / found.labelled
        lines += ["", f"Of {found.labelled:,} labels {share:.2%} are the same."]
    return "\n".join(lines)
