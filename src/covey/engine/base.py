"""What execution may ask of an engine; no torch here.

An engine answers prompts. Execution hands it documents once, by content, and
from then on speaks in document ids. Within one query everything goes through a
session, so that an engine sees all the prompts of the query and can share and
drop prefixes as the plan allows.

    with engine.session(documents) as session:
        ids = documents.add(texts)
        ticket = session.submit(PromptBatch(question, ids[:, None]))
        for answers in session.run():      # more may be submitted while this runs
            ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Protocol, Self

from covey.arrays import Float64, Int64
from covey.errors import RunError
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Prompts of one question, one row a prompt, no two rows equal.

    Attributes:
        question: what is asked.
        documents: (n, question.arity) int64, ids in the `DocumentStore` of the session.
            A question of arity 0 has n == 1.
        reads: how many later batches are expected to read the anchor document of a
            row, 0 where the plan says none; tells the engine what its keys and values
            are worth once the batch has run.
    """

    question: Question
    documents: Int64
    reads: float = 0.0


@dataclass(frozen=True, slots=True)
class Answers:
    """Some finished prompts of one batch. Every row of a batch is delivered once.

    Attributes:
        ticket: the batch, as `submit` returned it.
        rows: (m,) int64, positions in the batch.
        scores: (m, question.width) float64: the margin in nats for a judgement, one a
            label where each is asked; for a classification the labels' log-probabilities,
            or the best label and its log-probability (`Question.width`). NaN where the row
            failed.
        errors: position in the batch -> reason, for the rows that failed.
    """

    ticket: int
    rows: Int64
    scores: Float64
    errors: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Counters:
    """What a session did.

    Attributes:
        requested_tokens: of every prompt in full.
        fresh_tokens: computed by forward passes.
        minimum_tokens: the least that had to be computed, each shared prefix once
            (`engine.minimum`).
        batches, batch_capacity: forward passes, and tokens that they had room for.
        evictions: times that keys and values were given up which a later prompt might read.
        peak_slots: most tokens whose keys and values were held at once.
    """

    prompts: int = 0
    failed: int = 0
    requested_tokens: int = 0
    fresh_tokens: int = 0
    minimum_tokens: int = 0
    batches: int = 0
    batch_capacity: int = 0
    evictions: int = 0
    peak_slots: int = 0
    host_seconds: float = 0.0
    device_seconds: float = 0.0

    @property
    def recomputed_tokens(self) -> int:
        """Fresh tokens above the minimum: prefixes that were evicted and computed again."""
        return self.fresh_tokens - self.minimum_tokens

    @property
    def fill(self) -> float:
        """Mean share of a batch's room that was used, 0 before the first."""
        return self.fresh_tokens / self.batch_capacity if self.batch_capacity else 0.0


class OutOfMemory(RunError):
    """The device had no room for a forward batch. The session has ended; see `Engine.shrink`."""


def carry_on(counters: Counters, earlier: Counters) -> None:
    """Let the account of a session go on from that of an earlier one."""
    for item in fields(Counters):
        setattr(counters, item.name, getattr(earlier, item.name))


class EngineSession(Protocol):
    """One query's work. Leaving the `with` block frees all it held, also on failure."""

    @property
    def counters(self) -> Counters:
        """The session's account, brought up to date while it runs."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens whose keys and values the session can hold at once."""
        ...

    def lengths(self, question: Question, documents: Int64) -> tuple[Int64, int | None]:
        """Tokens of documents, and how many a prompt of a question has room for.

        Args:
            documents: (n, arity) ids.

        Returns:
            (n, arity) int64; the room for all documents of one prompt, None where there is
            no limit.
        """
        ...

    def submit(self, batch: PromptBatch) -> int:
        """Queue a batch; return its ticket at once. Nothing runs before `run`.

        Tickets count upwards; of work that is ready, the lower ticket goes first.
        """
        ...

    def release(self, documents: Int64) -> None:
        """No later batch will have one of these documents as its anchor.

        Args:
            documents: (n,) int64 ids; those the session does not hold are ignored.
        """
        ...

    def run(self) -> Iterator[Answers]:
        """Run until nothing is queued. The caller may submit more between answers."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Engine(Protocol):
    """A loaded model, ready to answer."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def fingerprint(self) -> str | None:
        """Names weights and layout: engines of one fingerprint give one answer to a prompt.

        None where two runs may answer differently: such answers are not kept.
        """
        ...

    def session(self, documents: DocumentStore) -> EngineSession:
        """Open a session over the documents of one query, to which more may be added.

        One session at a time is active on an engine.
        """
        ...

    def shrink(self) -> str | None:
        """Use less device memory from the next session on.

        Returns:
            what it now makes do with, as "batches of 512 tokens"; None where nothing is left
            to give up.
        """
        ...


class ModelSource(Protocol):
    """A model that is not loaded yet: all that planning needs to know of it."""

    @property
    def name(self) -> str:
        """What plans and reports call it."""
        ...

    @property
    def kinds(self) -> frozenset[QuestionKind]:
        """The kinds of question it can answer."""
        ...

    def profile(self) -> ModelProfile:
        """What an estimate needs to know of it; loads and fetches nothing.

        Raises:
            ModelError: its files are damaged.
        """
        ...

    def open(self) -> Engine:
        """Load the model.

        Raises:
            ModelError: files are missing or corrupt, or the device cannot run them.
        """
        ...
