"""Run queries through Covey and write what was measured, one file a query.

A query whose file is there, with the same settings, is not run again: a suite that was
stopped goes on where it was.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import covey
from covey.engine.base import ModelSource
from covey.engine.local import LocalModel
from covey.engine.outlook import Outlook
from covey.errors import CoveyError, InputError, UnsupportedError
from covey.optimizer.cost import Work, speed_of_light
from suite.check import digest, reference_rows, same_rows
from suite.forced import ForcedModel, Said
from suite.minimum import minimum_work
from suite.oracle import Oracle
from suite.plan import Plan
from suite.queries import QUERIES
from suite.records import Record, Run, environment, read_record, record_path, write_record
from suite.smoke import SCALE as SMOKE
from suite.smoke import smoke_corpus
from suite.sql import to_sql
from suite.tables import DEFAULT_SEED, Corpus, make_corpus
from suite.tokens import CorpusTokens
from suite.truth import plant
from suite.work import stages

_PLANTED = "planted"
_BUDGET = 16_384  # fresh tokens of a pass, where the model does not say


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run.

    Attributes:
        model: "planted", or what `covey.connect` takes.
        scale: a scale factor; 0 is the smoke size.
        seed: of tables and truth.
        truth: which planted truth, see `truth`.
        forced: whether the planted answers replace a real model's.
        repeats: runs of each query.
        check: whether rows are compared with DuckDB's.
        price_per_hour: US dollars; None takes the device's usual price.
    """

    model: str = _PLANTED
    scale: float = 0.01
    seed: int = DEFAULT_SEED
    truth: str = "measured"
    forced: bool = True
    repeats: int = 1
    check: bool = False
    price_per_hour: float | None = None

    @property
    def label(self) -> str:
        """What reports call the engine."""
        return "covey" if self.model != _PLANTED else "covey-planted"


def corpus_of(scale: float, seed: int) -> Corpus:
    """The tables of a scale factor, 0 being the smoke size."""
    return smoke_corpus(seed) if scale == SMOKE else make_corpus(scale, seed)


def chosen(names: Sequence[str]) -> list[Plan]:
    """The queries of some names or families, all where none is named.

    Raises:
        InputError: a name fits none.
    """
    if not names:
        return list(QUERIES.values())
    found: dict[str, Plan] = {}
    for name in names:
        fitting = {q.id: q for q in QUERIES.values() if name.upper() in (q.id, q.dataset)}
        if not fitting:
            families = ", ".join(dict.fromkeys(q.dataset for q in QUERIES.values()))
            raise InputError(f"There is no query {name!r}. Name one, or a family: {families}.")
        found |= fitting
    return list(found.values())


class Suite:
    """One engine over one corpus.

    Args:
        settings: what is run.
        folder: where results go.
        say: prints a line of progress.
    """

    def __init__(self, settings: Settings, folder: Path, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._folder = folder
        self._say = say
        self.corpus = corpus_of(settings.scale, settings.seed)
        self._oracle = Oracle(self.corpus, plant(self.corpus, settings.truth))
        local = None if settings.model == _PLANTED else LocalModel(settings.model)
        source = None if local is None else ForcedModel(local, self._oracle, force=settings.forced)
        self._forced = source
        self._tokens = tokens_of(self.corpus, local)
        started = time.perf_counter()
        if source is not None:
            source.open()
        self._start_seconds = time.perf_counter() - started
        self._outlook = None if source is None else source.outlook()
        self._environment = environment()

    def run(self, plans: Sequence[Plan]) -> list[Record]:
        """Run what has no record yet; returns the records of all."""
        found = []
        for plan in plans:
            record = self._known(plan)
            if record is None:
                record = self._measure(plan)
                write_record(self._folder, record)
                self._say(_line(record))
            found.append(record)
        return found

    def _record(self, plan: Plan) -> Record:
        return Record(plan.id, self._settings.label, asdict(self._settings), self._environment)

    def _known(self, plan: Plan) -> Record | None:
        path = record_path(self._folder, self._settings.label, plan.id)
        if not path.is_file():
            return None
        known = read_record(path)
        # What failed is tried again.
        return known if known.runs and known.key == self._record(plan).key else None

    def _measure(self, plan: Plan) -> Record:
        values = asdict(self._record(plan))
        runs: list[Run] = []
        equal: bool | None = None
        problem = None
        try:
            for _ in range(self._settings.repeats):
                run, compared = self._once(plan, check=self._settings.check and not runs)
                equal = compared if equal is None else equal
                runs.append(run)
        except (CoveyError, NotImplementedError) as error:
            problem = str(error).splitlines()[0]
            if not isinstance(error, UnsupportedError):
                self._say(f"{plan.id}: {error}")
        work, price = self._work(plan), self._price()
        values |= {
            "start_seconds": self._start_seconds,
            "requested": round(work.requested),
            "minimum": round(work.fresh),
            "sol_seconds": _sol(work, self._outlook),
            "price_per_hour": price,
            "runs": runs,
            "problem": problem,
            "rows_equal": equal,
        }
        return Record(**values)

    def _work(self, plan: Plan) -> Work:
        asked = stages(plan, self.corpus, self._oracle.truth)
        costs = self._outlook.costs if self._outlook is not None else None
        return minimum_work(asked, self._tokens, costs.budget if costs is not None else _BUDGET)

    def _price(self) -> float | None:
        if self._settings.price_per_hour is not None:
            return self._settings.price_per_hour
        device = self._outlook.device if self._outlook is not None else None
        return None if device is None else device.price

    def _once(self, plan: Plan, *, check: bool) -> tuple[Run, bool | None]:
        model: ModelSource = self._forced or self._oracle.planted_model()
        said = self._forced.said if self._forced is not None else []
        said.clear()
        _reset_peak()
        with covey.connect(model, progress=False, cache=False) as connection:
            for name, table in self.corpus.tables.items():
                connection.register(name, table)
            query = connection.sql(to_sql(plan))
            connection.engine()
            started = time.perf_counter()
            rows = query.arrow()
            seconds = time.perf_counter() - started
            counters = query.report.counters
        equal = None
        if check:
            equal = same_rows(rows, reference_rows(plan, self._oracle, self.corpus.tables), plan)
        if said:
            _write_said(self._folder / "answers" / f"{self._settings.label}.{plan.id}.npz", said)
        real = self._forced is not None
        return (
            Run(
                seconds=seconds,
                device_seconds=counters.device_seconds if real else None,
                host_seconds=counters.host_seconds,
                requested=counters.requested_tokens if real else None,
                fresh=counters.fresh_tokens if real else None,
                minimum=counters.minimum_tokens if real else None,
                prompts=counters.prompts,
                rows=len(rows),
                digest=digest(rows, plan),
                peak_bytes=_peak_bytes(),
            ),
            equal,
        )


def tokens_of(corpus: Corpus, model: LocalModel | None) -> CorpusTokens:
    """The tokens of a corpus in a model's tokenizer, in the suite's own without a model."""
    if model is None:
        return CorpusTokens(corpus)
    return CorpusTokens(corpus, model.encoder, model.spec.bos)


def _sol(work: Work, outlook: Outlook | None) -> float | None:
    if outlook is None or outlook.costs is None or outlook.device is None:
        return None
    return speed_of_light(work, outlook.costs, outlook.device).total


def _write_said(path: Path, said: list[Said]) -> None:
    """What the model itself said, a pair of arrays a question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    for template in dict.fromkeys(each.template for each in said):
        own = [each for each in said if each.template == template]
        number = len(arrays) // 3
        arrays[f"question{number}"] = np.array(template)
        arrays[f"rows{number}"] = np.concatenate([each.rows for each in own])
        arrays[f"scores{number}"] = np.concatenate([each.scores for each in own])
    np.savez_compressed(path, **arrays)


def _on_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


def _reset_peak() -> None:
    if _on_gpu():
        sys.modules["torch"].cuda.reset_peak_memory_stats()
    try:  # Linux forgets the process's peak when it is asked to
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_bytes() -> int:
    if _on_gpu():
        return int(sys.modules["torch"].cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _line(record: Record) -> str:
    if not record.runs:
        return f"{record.query:<12} {record.engine}: {record.problem}"
    run = record.runs[0]
    times = ", ".join(f"{each.seconds:.2f}" for each in record.runs)
    text = f"{record.query:<12} {record.engine}: {times} s, {run.prompts:,} prompts"
    if run.rows is not None:
        text += f", {run.rows:,} rows"
    if record.rows_equal is not None:
        text += ", as DuckDB" if record.rows_equal else ", NOT as DuckDB"
    return text
