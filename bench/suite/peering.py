"""Give a peer its work and read what it did; see `peers.protocol` for the files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covey.engine.local import LocalModel
from covey.errors import InputError
from covey.estimate.cost import roofline_seconds
from covey.models.tokenizer import TextEncoder
from covey.prompts.layout import RAW_V1
from suite.answers import Said, write_answers
from suite.minimum import minimum_work
from suite.peers.protocol import SCHEMA
from suite.plan import Plan
from suite.querying import write_query
from suite.records import Record, Run, environment, read_record, record_path, recorded, write_record
from suite.run import corpus_of, tokens_of
from suite.sql import to_sql
from suite.starting import Interpreter, peer_names, run_peer
from suite.tables import DEFAULT_SEED
from suite.tokens import CorpusTokens
from suite.truth import Truth, plant
from suite.work import Stage, stages

_TRUE = ("TRUE", " TRUE", "True", " True")
_FALSE = ("FALSE", " FALSE", "False", " False")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """What a peer is given.

    Attributes:
        peer: "vllm", "quail", "transformers" or "double".
        model: path of the checkpoint, the same that Covey runs; its tokenizer makes the ids.
        settings: the peer's own, see its script.
        label: what reports call it.
        scale, seed, truth, repeats, price_per_hour: as in `run.Settings`.
    """

    peer: str
    model: str
    settings: dict[str, Any]
    label: str
    scale: float = 0.01
    seed: int = DEFAULT_SEED
    truth: str = "measured"
    repeats: int = 1
    price_per_hour: float | None = None


def write_work(folder: Path, plan: Plan, tokens: CorpusTokens, truth: Truth) -> list[Stage]:
    """Write a query's work, as `peers.protocol` describes it; returns its stages."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = stages(plan, tokens.corpus, truth)
    columns: list[tuple[str, str]] = []
    arrays: dict[str, np.ndarray] = {}
    described = []
    for number, stage in enumerate(asked):
        for source in stage.predicate.documents:
            if source not in columns:
                arrays[f"column{len(columns)}_flat"] = tokens.column(source).flat
                arrays[f"column{len(columns)}_offsets"] = tokens.column(source).offsets
                columns.append(source)
        arrays[f"stage{number}_anchors"] = stage.anchors
        partners = stage.partners
        arrays[f"stage{number}_partners"] = stage.anchors if partners is None else partners
        arrays[f"stage{number}_answers"] = _answers(stage, truth)
        described.append(_describe(stage, asked[:number], columns, tokens))
    meta = {
        "schema": SCHEMA,
        "query": plan.id,
        "sql": to_sql(plan),
        "columns": len(columns),
        "stages": described,
        "true": _first_tokens(tokens.encoder, _TRUE),
        "false": _first_tokens(tokens.encoder, _FALSE),
    }
    np.savez(folder / "work.npz", **arrays)
    (folder / "work.json").write_text(json.dumps(meta), encoding="utf-8")
    return asked


def _answers(stage: Stage, truth: Truth) -> np.ndarray:
    answers = truth.labelled if stage.predicate.labels else truth.judged
    return answers[stage.predicate.name][stage.rows].astype(np.int64)


def _describe(
    stage: Stage, before: Sequence[Stage], columns: list[tuple[str, str]], tokens: CorpusTokens
) -> dict[str, Any]:
    predicate = stage.predicate
    pieces = tokens.pieces(predicate)
    others = [i for i in range(len(predicate.documents)) if i != predicate.anchor]
    labels = [tokens.encoder.ids(text) for text in RAW_V1.answers(predicate.question)]
    named = (("preamble", pieces.preamble), ("instruction", pieces.instruction))
    named += (("heading", pieces.heading), ("tail", pieces.tail))
    return {
        "question": predicate.name,
        "labels": labels,
        "pieces": {name: ids.tolist() for name, ids in named},
        "anchor": columns.index(predicate.documents[predicate.anchor]),
        "partner": columns.index(predicate.documents[others[0]]) if others else None,
        # Only judgements and IN lists reject rows; a label alone holds nothing up.
        "after_anchor": _latest(before, stage.anchor, as_anchor=True),
        "after_partner": max(
            (_latest(before, stage.aliases[i], as_anchor=False) for i in others), default=-1
        ),
    }


def _latest(before: Sequence[Stage], alias: str, *, as_anchor: bool) -> int:
    """The last stage that decides about an alias, by its anchor row or as a whole; or -1."""
    found = -1
    for number, stage in enumerate(before):
        if stage.anchor == alias or (not as_anchor and alias in stage.aliases):
            found = number
    return found


def _first_tokens(encoder: TextEncoder, words: Sequence[str]) -> list[int]:
    return sorted({encoder.ids(word)[0] for word in words})


class PeerSuite:
    """One peer over one corpus.

    Args:
        settings: what is run.
        folder: where results go.
        interpreter: how the peer is started.
        say: prints a line of progress.

    Raises:
        InputError: there is no such peer.
    """

    def __init__(
        self,
        settings: PeerSettings,
        folder: Path,
        interpreter: Interpreter,
        say: Callable[[str], None],
    ) -> None:
        if settings.peer not in peer_names():
            raise InputError(
                f"There is no peer {settings.peer!r}. Known: {', '.join(peer_names())}."
            )
        self._settings = settings
        self._folder = folder
        self._interpreter = interpreter
        self._say = say
        self._model = LocalModel(settings.model)
        self._tokens = tokens_of(corpus_of(settings.scale, settings.seed), self._model)
        self._truth = plant(self._tokens.corpus, settings.truth)

    def run(self, plans: Sequence[Plan]) -> None:
        """Run what has no record yet; records are written as the peer answers.

        Raises:
            RunError: the peer ended before it had answered; its own words are on stderr.
        """
        missing = [plan for plan in plans if not self._known(plan)]
        if not missing:
            return
        # Work is large, and of no use once it is done.
        with tempfile.TemporaryDirectory(prefix="covey-peer-") as made:
            works = []
            for plan in missing:
                folder = Path(made) / plan.id
                asked = write_work(folder, plan, self._tokens, self._truth)
                if self._settings.peer == "quail":
                    write_query(folder, plan, self._tokens, self._truth)
                works.append(_Given(plan, folder, asked))
            for repeat in range(self._settings.repeats):
                self._start(works, first=repeat == 0)

    def _blank(self, plan: Plan) -> Record:
        return Record(plan.id, self._settings.label, recorded(self._settings), environment())

    def _known(self, plan: Plan) -> bool:
        """Whether the query has run with these settings; a failure is tried again."""
        path = self._path(plan)
        if not path.is_file():
            return False
        record = read_record(path)
        return bool(record.runs) and record.key == self._blank(plan).key

    def _start(self, works: Sequence[_Given], *, first: bool) -> None:
        """Run the peer once over all work, and read each result as it comes."""
        given = {each.folder: each for each in works}

        def take(folder: Path) -> None:
            each = given[folder]
            self._read(each.plan, folder, each.asked, first=first)

        settings = self._settings
        path = self._model.files.path
        left = run_peer(
            settings.peer, path, settings.settings, self._interpreter, list(given), take
        )
        if left:
            names = ", ".join(given[folder].plan.id for folder in left)
            self._say(f"Ended after {self._interpreter.seconds:g} s without {names}.")

    def _read(self, plan: Plan, folder: Path, asked: list[Stage], *, first: bool) -> None:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        values = asdict(self._blank(plan))
        values["environment"]["packages"] |= result["versions"]
        profile = self._model.profile()
        costs, device = profile.costs, profile.device
        work = minimum_work(asked, self._tokens, costs.budget if costs else 1)
        runs = [] if first else read_record(self._path(plan)).runs
        if "problem" not in result:
            runs.append(_run(result))
            _keep_said(self._folder, self._settings.label, plan.id, folder, asked)
        price = self._settings.price_per_hour
        values |= {
            "start_seconds": result["start_seconds"],
            "requested": round(work.requested),
            "minimum": round(work.fresh),
            "sol_seconds": roofline_seconds(work, costs, device) if costs and device else None,
            "price_per_hour": device.price if price is None and device is not None else price,
            "runs": runs,
            "problem": result.get("problem"),
        }
        record = Record(**values)
        write_record(self._folder, record)
        times = ", ".join(f"{run.seconds:.2f}" for run in record.runs)
        self._say(f"{plan.id:<12} {record.engine}: {record.problem or times + ' s'}")

    def _path(self, plan: Plan) -> Path:
        return record_path(self._folder, self._settings.label, plan.id)


@dataclass(frozen=True, slots=True)
class _Given:
    """A query's work: the folder that the peer is given, and its stages."""

    plan: Plan
    folder: Path
    asked: list[Stage]


def _run(result: dict[str, Any]) -> Run:
    fresh = [stage["fresh"] for stage in result["stages"]]
    return Run(
        seconds=result["seconds"],
        device_seconds=result["device_seconds"],
        requested=sum(stage["requested"] for stage in result["stages"]),
        fresh=None if None in fresh else sum(fresh),
        prompts=sum(stage["prompts"] for stage in result["stages"]),
        peak_bytes=result["peak_bytes"],
    )


def _best(said: np.ndarray) -> np.ndarray:
    """Margins as they are; of labels' log-probabilities the best one's number and value."""
    if said.shape[1] == 1:
        return said
    return np.stack([said.argmax(1), said.max(1)], axis=1)


def _keep_said(folder: Path, label: str, query: str, work: Path, asked: list[Stage]) -> None:
    """Put what the peer's model said where `compare` looks, in the form of Covey's answers."""
    path = work / "said.npz"
    if not path.is_file():
        return
    with np.load(path) as file:
        said = [
            Said(
                stage.predicate.template,
                np.stack(stage.rows, axis=1),
                _best(file[f"stage{number}"]),
            )
            for number, stage in enumerate(asked)
            if f"stage{number}" in file
        ]
    write_answers(folder / "answers" / f"{label}.{query}.npz", said)
