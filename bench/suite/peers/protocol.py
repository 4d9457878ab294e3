"""What a peer is given and what it gives back. Needs numpy alone.

A folder of work holds `work.json` and `work.npz`: the stages of one query with the rows that
survive under the planted truth, as token ids. Texts are not repeated: a prompt is put
together from preamble, anchor, instruction, heading, partner and tail. The peer writes
`result.json` and, where it has them, `said.npz` beside them.

    python PEER.py --model MODEL --settings '{"batch": 8}' [--seconds N] FOLDER [FOLDER ...]

With --seconds a query that takes longer is given up; its result says so and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

SCHEMA = 1


@dataclass(frozen=True)
class Column:
    """The tokens of a table's column: run i is flat[offsets[i]:offsets[i + 1]]."""

    flat: np.ndarray
    offsets: np.ndarray

    def run(self, row: int) -> list[int]:
        """The ids of one row."""
        ids: list[int] = self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()
        return ids

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """(n,) tokens of some rows."""
        return self.offsets[rows + 1] - self.offsets[rows]


@dataclass(frozen=True)
class Stage:
    """One operator's prompts.

    Attributes:
        question: the predicate's name.
        labels: token ids of each label, empty for a judgement.
        pieces: token ids of preamble, instruction, heading and tail.
        anchor, partner: the columns of the documents; partner None where there is one.
        anchors, partners: (n,) rows of each prompt.
        answers: (n,) planted answers: 1 or 0, or an index of labels.
        after_anchor, after_partner: index of the earlier stage whose answers about the same
            rows decide whether a prompt is asked, -1 for none.
    """

    question: str
    labels: tuple[tuple[int, ...], ...]
    pieces: dict[str, list[int]]
    anchor: Column
    partner: Column | None
    anchors: np.ndarray
    partners: np.ndarray
    answers: np.ndarray
    after_anchor: int
    after_partner: int

    def __len__(self) -> int:
        return len(self.anchors)

    def prompt(self, index: int) -> list[int]:
        """The token ids of one prompt."""
        ids = self.pieces["preamble"] + self.anchor.run(int(self.anchors[index]))
        ids += self.pieces["instruction"] + self.pieces["heading"]
        if self.partner is not None:
            ids += self.partner.run(int(self.partners[index]))
        return ids + self.pieces["tail"]

    def lengths(self) -> np.ndarray:
        """(n,) tokens of each prompt."""
        found = self.anchor.lengths(self.anchors) + sum(len(p) for p in self.pieces.values())
        return found if self.partner is None else found + self.partner.lengths(self.partners)

    def windows(self, tokens: int) -> Iterator[range]:
        """Ranges of prompts of so many tokens in all, so that not all are made at once."""
        ends = np.cumsum(self.lengths())
        start = 0
        while start < len(self):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + tokens, side="right"))
            stop = max(stop, start + 1)
            yield range(start, stop)
            start = stop


@dataclass(frozen=True)
class Work:
    """A query's stages.

    Attributes:
        query: its id.
        folder: where the files lie.
        stages: in the order that an engine with a planner runs them.
        true, false: first tokens of the spellings of TRUE and FALSE.
    """

    query: str
    folder: Path
    stages: tuple[Stage, ...]
    true: tuple[int, ...]
    false: tuple[int, ...]


@dataclass
class Timing:
    """What a stage took.

    Attributes:
        seconds: wall clock.
        prompts: answered.
        requested, fresh: tokens; fresh None where the engine does not tell.
    """

    seconds: float
    prompts: int
    requested: int
    fresh: int | None


@dataclass
class Outcome:
    """What a peer did with a query.

    Attributes:
        seconds: of the whole query, start-up apart.
        stages: by operator; one entry for the whole where operators overlap.
        peak_bytes: most memory, on the device where there is one.
        device_seconds: time the device was busy, None where the engine does not tell.
        said: per stage (n, 1) margins or (n, labels) log-probabilities of the model itself,
            None where they were not read. Plus or minus one where only the side is known.
    """

    seconds: float
    stages: list[Timing] = field(default_factory=list)
    peak_bytes: int | None = None
    device_seconds: float | None = None
    said: list[np.ndarray | None] = field(default_factory=list)


def load_work(folder: Path) -> Work:
    """Read a folder of work.

    Raises:
        ValueError: it is of another schema.
    """
    meta = json.loads((folder / "work.json").read_text(encoding="utf-8"))
    if meta["schema"] != SCHEMA:
        raise ValueError(f"{folder} holds work of schema {meta['schema']}, not {SCHEMA}")
    with np.load(folder / "work.npz") as arrays:
        columns = [
            Column(arrays[f"column{i}_flat"], arrays[f"column{i}_offsets"])
            for i in range(meta["columns"])
        ]
        stages = tuple(
            Stage(
                question=each["question"],
                labels=tuple(tuple(ids) for ids in each["labels"]),
                pieces=each["pieces"],
                anchor=columns[each["anchor"]],
                partner=None if each["partner"] is None else columns[each["partner"]],
                anchors=arrays[f"stage{i}_anchors"],
                partners=arrays[f"stage{i}_partners"],
                answers=arrays[f"stage{i}_answers"],
                after_anchor=each["after_anchor"],
                after_partner=each["after_partner"],
            )
            for i, each in enumerate(meta["stages"])
        )
    return Work(meta["query"], folder, stages, tuple(meta["true"]), tuple(meta["false"]))


def write_outcome(work: Work, outcome: Outcome, about: dict[str, Any]) -> None:
    """Write result.json, and said.npz where there is anything to say."""
    arrays = {f"stage{i}": each for i, each in enumerate(outcome.said) if each is not None}
    if arrays:
        np.savez_compressed(work.folder / "said.npz", **arrays)
    values = asdict(outcome)
    del values["said"]
    _write(work.folder, {"schema": SCHEMA, "query": work.query, **about, **values})


def _write(folder: Path, values: dict[str, Any]) -> None:
    part = folder / "result.part"
    part.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / "result.json")


class Peer:
    """An engine under test; subclasses load a model and run work."""

    name = "peer"

    def load(self, model: str, settings: dict[str, Any]) -> dict[str, str]:
        """Make ready; returns versions of what matters."""
        raise NotImplementedError

    def run(self, work: Work) -> Outcome:
        """Answer a query's prompts."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Forget what is left of a query that failed or took too long."""


class TooLong(Exception):
    """A query that was given up."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TooLong` in the block once it has taken so long.

    Args:
        seconds: None for no limit.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"given up after {seconds:g} s")

    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def main(peer: Peer, arguments: Sequence[str] | None = None) -> int:
    """The command line of a peer: load once, then every folder; returns the exit status.

    A query that fails is written down with its reason, and the next one runs.
    """
    parser = argparse.ArgumentParser(description=f"Run {peer.name} on folders of work.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON")
    parser.add_argument("--seconds", type=float, help="the most that one query may take")
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    versions = peer.load(options.model, options.settings)
    about = {
        "peer": peer.name,
        "versions": versions,
        "settings": options.settings,
        "start_seconds": time.perf_counter() - started,
    }
    for folder in options.folders:
        work = load_work(folder)
        try:
            with time_limit(options.seconds):
                outcome = peer.run(work)
            write_outcome(work, outcome, about)
        except Exception as error:  # whatever the engine raises belongs into its record
            traceback.print_exc()
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
            _write(folder, {"schema": SCHEMA, "query": work.query, **about, "problem": problem})
            peer.give_up()
    return 0


def by_stage(work: Work, ask: Callable[[Stage], tuple[int | None, np.ndarray | None]]) -> Outcome:
    """Run one stage after the other.

    Args:
        ask: answers a stage's prompts; returns fresh tokens and what the model said.
    """
    outcome = Outcome(0.0)
    started = time.perf_counter()
    for stage in work.stages:
        began = time.perf_counter()
        fresh, said = ask(stage) if len(stage) else (0, None)
        seconds = time.perf_counter() - began
        requested = int(stage.lengths().sum())
        outcome.stages.append(Timing(seconds, len(stage), requested, fresh))
        outcome.said.append(said)
    outcome.seconds = time.perf_counter() - started
    return outcome
