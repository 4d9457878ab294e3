"""Run queries through Covey and write what was measured, one file a query.

A query whose file is there, with the same settings, is not run again: a suite that was
stopped goes on where it was.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import covey
from covey.engine.base import Engine
from covey.engine.local import LocalModel
from covey.errors import CoveyError, UnsupportedError
from covey.estimate.cost import Work, roofline_seconds
from covey.estimate.profile import ModelProfile
from suite.answers import write_answers
from suite.blank import BlankModel
from suite.check import digest, reference_rows, same_rows
from suite.choose import chosen
from suite.forced import ForcedModel
from suite.memory import peak_bytes, reset_peak
from suite.minimum import minimum_work
from suite.oracle import Oracle
from suite.plan import Plan
from suite.records import Record, Run, environment, read_record, record_path, recorded, write_record
from suite.smoke import SCALE as SMOKE
from suite.smoke import smoke_corpus
from suite.sql import to_sql
from suite.tables import DEFAULT_SEED, Corpus, make_corpus
from suite.tokens import CorpusTokens
from suite.truth import plant
from suite.work import stages

_PLANTED = "planted"
_BUDGET = 16_384  # fresh tokens of a pass, where the model does not say
# Rows up to which a result is held and its digest taken; of more they are counted.
DIGEST_ROWS = 1_200_000
# What is run before anything is measured: filters, pairs, labels, long and short documents.
WARM_SCALE = 0.01
WARM_QUERIES = ("IMDB-1", "IMDB-2", "BIO-4", "FEV-11")


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


class Suite:
    """One engine over one corpus.

    Args:
        settings: what is run.
        folder: where results go.
        say: prints a line of progress.
    """

    def __init__(self, settings: Settings, folder: Path, say: Callable[[str], None]) -> None:
        self._began = time.perf_counter()
        self._settings = settings
        self._folder = folder
        self._say = say
        self.corpus = corpus_of(settings.scale, settings.seed)
        self._oracle = Oracle(self.corpus, plant(self.corpus, settings.truth))
        self._local = None if settings.model == _PLANTED else LocalModel(settings.model)
        self._model = self._forced(self._oracle)
        self._tokens = tokens_of(self.corpus, self._local)
        started = time.perf_counter()
        engine = self._model.open().engine
        self._start_seconds = time.perf_counter() - started
        self._warm_seconds: float | None = None
        limits = getattr(engine, "limits", None)
        self._limits = None if limits is None else asdict(limits)
        self._profile = None if self._local is None else self._model.profile()
        self._environment = environment()
        self._pace = Pace()
        self._works: dict[str, Work] = {}

    def _forced(self, oracle: Oracle, engine: Engine | None = None) -> ForcedModel:
        source = self._local or BlankModel()
        return ForcedModel(source, oracle, force=self._settings.forced, engine=engine)

    def warm_up(self) -> None:
        """Run a few small queries, so that no kernel is compiled in one that is measured."""
        started = time.perf_counter()
        corpus = corpus_of(WARM_SCALE, self._settings.seed)
        oracle = Oracle(corpus, plant(corpus, self._settings.truth))
        model = self._forced(oracle, self._model.engine)
        for plan in chosen(WARM_QUERIES):
            with connected(model, corpus) as connection:
                connection.sql(to_sql(plan)).arrow()
        self._warm_seconds = time.perf_counter() - started
        self._say(f"Warm after {self._warm_seconds:.1f} s.")

    def run(self, plans: Sequence[Plan], seconds: float | None = None) -> list[Record]:
        """Run what has no record yet; returns the records of all that ran.

        Args:
            plans: what to run, in this order.
            seconds: since this suite was made, after which no query is started; nor is one
                that is not expected to end before.
        """
        found = []
        left = []
        for plan in plans:
            record = self._known(plan)
            if record is None and seconds is not None and not self._fits(plan, seconds):
                left.append(plan.id)
                continue
            if record is None:
                record = self._measure(plan)
                write_record(self._folder, record)
                self._say(_line(record))
            found.append(record)
        if left:
            self._say(
                f"Not started within {seconds:g} s: {', '.join(left)}. The same command again"
                " goes on with them."
            )
        return found

    def _fits(self, plan: Plan, seconds: float) -> bool:
        left = seconds - (time.perf_counter() - self._began)
        return left > 0 and self._pace.expected(_sol(self._work(plan), self._profile)) <= left

    def _record(self, plan: Plan) -> Record:
        return Record(plan.id, self._settings.label, recorded(self._settings), self._environment)

    def _known(self, plan: Plan) -> Record | None:
        path = record_path(self._folder, self._settings.label, plan.id)
        if not path.is_file():
            return None
        known = read_record(path)
        # What failed is tried again.
        return known if known.runs and known.key == self._record(plan).key else None

    def _measure(self, plan: Plan) -> Record:
        values = asdict(self._record(plan))
        # Counted first, so that nothing slow stands between a run and its record.
        work = self._work(plan)
        sol = _sol(work, self._profile)
        runs: list[Run] = []
        equal: bool | None = None
        problem = None
        try:
            for _ in range(self._settings.repeats):
                run, compared = self._once(plan, check=self._settings.check and not runs)
                equal = compared if equal is None else equal
                runs.append(run)
        except Exception as error:  # whatever a device raises belongs into the record
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not isinstance(error, CoveyError):
                problem = f"{type(error).__name__}: {problem}"
                traceback.print_exc()
            elif not isinstance(error, UnsupportedError):
                self._say(f"{plan.id}: {error}")
        self._pace.add(sol, [run.seconds for run in runs])
        values |= {
            "start_seconds": self._start_seconds,
            "warm_seconds": self._warm_seconds,
            "limits": self._limits,
            "requested": round(work.requested),
            "minimum": round(work.fresh),
            "sol_seconds": sol,
            "price_per_hour": self._price(),
            "runs": runs,
            "problem": problem,
            "rows_equal": equal,
        }
        return Record(**values)

    def _work(self, plan: Plan) -> Work:
        """The least work of a query, counted once."""
        if plan.id not in self._works:
            asked = stages(plan, self.corpus, self._oracle.truth)
            costs = self._profile.costs if self._profile is not None else None
            budget = costs.budget if costs is not None else _BUDGET
            self._works[plan.id] = minimum_work(asked, self._tokens, budget)
        return self._works[plan.id]

    def _price(self) -> float | None:
        if self._settings.price_per_hour is not None:
            return self._settings.price_per_hour
        device = self._profile.device if self._profile is not None else None
        return None if device is None else device.price

    def _once(self, plan: Plan, *, check: bool) -> tuple[Run, bool | None]:
        self._model.said.clear()
        reset_peak()
        used = time.process_time()
        with connected(self._model, self.corpus) as connection:
            query = connection.sql(to_sql(plan))
            started = time.perf_counter()
            result = Streamed(
                query.batches(),
                math.inf if check else DIGEST_ROWS,
                lambda: query.report.counters.prompts,
            )
            seconds = time.perf_counter() - started
            counters = query.report.counters
        used = time.process_time() - used
        equal = None
        rows = result.table
        if check:
            wanted = reference_rows(plan, self._oracle, self.corpus.tables)
            equal = not len(wanted) if rows is None else same_rows(rows, wanted, plan)
        real = self._local is not None
        if real:
            path = self._folder / "answers" / f"{self._settings.label}.{plan.id}.npz"
            write_answers(path, self._model.said)
        return (
            Run(
                seconds=seconds,
                asked_seconds=None if result.answered is None else result.answered - started,
                device_seconds=counters.device_seconds if real else None,
                host_seconds=counters.host_seconds,
                processor_seconds=used,
                requested=counters.requested_tokens if real else None,
                fresh=counters.fresh_tokens if real else None,
                minimum=counters.minimum_tokens if real else None,
                prompts=counters.prompts,
                rows=result.rows,
                digest=None if rows is None else digest(rows, plan),
                peak_bytes=peak_bytes(),
                chunks=counters.batches if real else None,
                fill=counters.fill if real else None,
                evictions=counters.evictions if real else None,
                peak_slots=counters.peak_slots if real else None,
                failed=counters.failed,
            ),
            equal,
        )


class Pace:
    """How long queries take beside the roofline time of their least work."""

    def __init__(self) -> None:
        self._seconds = self._light = 0.0

    def add(self, light: float | None, seconds: Sequence[float]) -> None:
        """Learn from the runs of a query."""
        if light is not None:
            self._light += light * len(seconds)
            self._seconds += sum(seconds)

    def expected(self, light: float | None) -> float:
        """Seconds of a run, 0 where nothing is known: three times `light` before any ran."""
        if light is None:
            return 0.0
        return light * (self._seconds / self._light if self._light else 3.0)


class Streamed:
    """The rows of a result, counted as they come; kept as long as there are not too many.

    Args:
        batches: the result.
        most: rows up to which it is kept.
        prompts: tells how many the model has answered so far.

    Attributes:
        rows: how many there are.
        answered: when the first batch came for which the model had answered all
            (`time.perf_counter`).
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], most: float, prompts: Callable[[], int] = int
    ) -> None:
        self.rows = 0
        self.answered: float | None = None
        known = 0
        self._kept: list[pa.RecordBatch] | None = []
        for batch in batches:
            count = prompts()
            if self.answered is None or count > known:
                self.answered, known = time.perf_counter(), count
            self.rows += batch.num_rows
            if self._kept is not None:
                self._kept.append(batch)
                if self.rows > most:
                    self._kept = None

    @property
    def table(self) -> pa.Table | None:
        """All rows; None where there were too many, or no batch came."""
        return pa.Table.from_batches(self._kept) if self._kept else None


@contextmanager
def connected(model: ForcedModel, corpus: Corpus) -> Iterator[covey.Connection]:
    """A connection to a loaded model with the tables of a corpus."""
    with covey.connect(model, progress=False, cache=False) as connection:
        for name, table in corpus.tables.items():
            connection.register(name, table)
        connection.engine()
        yield connection


def tokens_of(corpus: Corpus, model: LocalModel | None) -> CorpusTokens:
    """The tokens of a corpus in a model's tokenizer, in the suite's own without a model."""
    if model is None:
        return CorpusTokens(corpus)
    return CorpusTokens(corpus, model.encoder, model.spec.bos)


def _sol(work: Work, profile: ModelProfile | None) -> float | None:
    if profile is None or profile.costs is None or profile.device is None:
        return None
    return roofline_seconds(work, profile.costs, profile.device)


def _line(record: Record) -> str:
    if not record.runs:
        return f"{record.query:<12} {record.engine}: {record.problem}"
    run = record.runs[0]
    times = ", ".join(f"{each.seconds:.2f}" for each in record.runs)
    text = f"{record.query:<12} {record.engine}: {times} s, {run.prompts:,} prompts"
    if run.rows is not None:
        text += f", {run.rows:,} rows"
    if run.failed:
        text += f", {run.failed:,} prompts FAILED"
    if record.rows_equal is not None:
        text += ", as DuckDB" if record.rows_equal else ", NOT as DuckDB"
    return text
