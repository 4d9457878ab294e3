"""An engine whose device has no room: what it gives up, what it answers, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
import torch

import covey
from covey.engine.base import Engine, EngineSession, OutOfMemory
from covey.engine.kv_cache.pool import KvCachePool
from covey.engine.limits import Limits
from covey.engine.loaded import LEAST_BATCHED_TOKENS, LEAST_SLOTS, LoadedEngine
from covey.engine.model_runner import Launched, ModelRunner
from covey.engine.questions import TokenMeasure
from covey.engine.session import LocalSession
from covey.estimate.profile import ModelProfile
from covey.estimate.rates import Rates
from covey.kernels.base import ForwardBatch
from covey.prompts.documents import DocumentStore
from covey.prompts.question import QuestionKind
from engine.plans import SPEC
from engine.symbolic import LAYOUT, CharEncoder, SymbolicRunner

NO_ROOM = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
QUERY = """
    SELECT id, AI.MARGIN(PROMPT('a {0}', s)) AS one FROM t
    WHERE AI.IF(PROMPT('{0}', s)) AND AI.IF(PROMPT('{0} {1}', s, u)) ORDER BY id
"""


class Short:
    """A model on a device that has no room now and then.

    Args:
        limits: of the engine.
        no_room: for (slots, budget, batches of the session so far): whether there is none; of
            a KV cache before it is made, batches are -1.
    """

    name = "short"
    kinds = frozenset({QuestionKind.JUDGE})

    def __init__(self, limits: Limits, no_room: Callable[[int, int, int], bool]) -> None:
        self.limits, self.no_room = limits, no_room
        self.sessions: list[LocalSession] = []

    def profile(self) -> ModelProfile:
        return ModelProfile(TokenMeasure(LAYOUT, CharEncoder(), None), fingerprint="short")

    def open(self) -> Engine:
        model = self

        class Watched(LoadedEngine):
            def session(self, documents: DocumentStore) -> EngineSession:
                session = super().session(documents)
                assert isinstance(session, LocalSession)
                model.sessions.append(session)
                return session

        def runner(slots: int) -> ModelRunner:
            if self.no_room(slots, engine.limits.max_batched_tokens, -1):
                raise OutOfMemory("No room for the KV cache.")
            return ShortRunner(slots, engine, self.no_room)

        engine = Watched("short", "short", runner, SPEC, CharEncoder(), LAYOUT, self.limits)
        return engine


class ShortRunner(SymbolicRunner):
    def __init__(
        self, slots: int, engine: LoadedEngine, no_room: Callable[[int, int, int], bool]
    ) -> None:
        super().__init__(slots)
        self._given, self._engine, self._no_room = slots, engine, no_room

    def launch(self, batch: ForwardBatch, *rest: object) -> Launched:
        if self._no_room(self._given, self._engine.limits.max_batched_tokens, len(self.batches)):
            raise RuntimeError(NO_ROOM)
        return super().launch(batch, *rest)  # type: ignore[arg-type]


def run(model: Short) -> tuple[list[tuple[object, ...]], covey.Report]:
    with covey.connect(model, cache=False, progress=False) as con:
        rows = [f"{chr(97 + i)}{'ab' * (i % 4)}" for i in range(20)]
        con.register("t", pa.table({"id": range(20), "s": rows, "u": rows[::-1]}))
        query = con.run(QUERY)
        return query.fetchall(), query.report


LIMITS = Limits(context=300, max_batched_tokens=4 * LEAST_BATCHED_TOKENS, slots=4 * LEAST_SLOTS)


@pytest.fixture(autouse=True)
def little_is_enough(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(covey.engine.loaded, "LEAST_BATCHED_TOKENS", 16)
    monkeypatch.setattr(covey.engine.loaded, "LEAST_SLOTS", 100)
    yield


@pytest.mark.parametrize(
    ("no_room", "notes"),
    [
        (lambda slots, budget, batches: batches >= 0 and budget > 100, ["batches of 64"]),
        (lambda slots, budget, batches: batches < 0 and slots > 200, ["tokens of 160 tokens"]),
        (lambda slots, budget, batches: batches == 3 and budget > 60, ["batches of 64", "of 32"]),
    ],
)
def test_the_query_ends_with_less_and_the_counters_add_up(
    no_room: Callable[[int, int, int], bool], notes: list[str]
) -> None:
    limits = Limits(context=300, max_batched_tokens=128, slots=320, in_flight=2)
    expected, undisturbed = run(Short(limits, lambda *_: False))
    assert len(expected) == 20
    model = Short(limits, no_room)
    rows, report = run(model)
    assert rows == expected
    assert len(report.notes) == len(notes), report.notes
    counters = report.counters
    pools = [session._tree for session in model.sessions]
    assert counters.evictions == sum(pool.evictions for pool in pools)
    assert counters.peak_slots == max(pool.peak for pool in pools)
    assert counters.prompts == undisturbed.counters.prompts
    assert counters.requested_tokens == undisturbed.counters.requested_tokens
    assert 0 < counters.minimum_tokens <= counters.fresh_tokens
    assert counters.fresh_tokens >= undisturbed.counters.minimum_tokens


def test_evictions_of_sessions_that_ended_are_not_forgotten() -> None:
    limits = Limits(context=300, max_batched_tokens=64, slots=60)
    model = Short(limits, lambda slots, budget, batches: batches == 12 and budget > 20)
    _, report = run(model)
    evictions = [session._tree.evictions for session in model.sessions]
    assert len(evictions) > 1 and evictions[0] > 0
    assert report.counters.evictions == sum(evictions)


def test_a_kv_cache_that_is_never_small_enough_ends_the_query() -> None:
    limits = Limits(context=300, max_batched_tokens=128, slots=320)
    with pytest.raises(covey.RunError, match=r"No room for the KV cache\. It cannot use less"):
        run(Short(limits, lambda slots, budget, batches: batches < 0))


def test_rates_are_measured_with_less_where_there_is_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def engine(no_room: Callable[[int, int, int], bool]) -> LoadedEngine:
        made = Short(Limits(context=300, max_batched_tokens=128, slots=320), no_room).open()
        assert isinstance(made, LoadedEngine)
        return made

    def measured(runner: ModelRunner, budget: int, slots: int, threads: int | None) -> Rates:
        if budget > 100:
            raise RuntimeError(NO_ROOM)
        return Rates(0.0, 1.0, 0.0, 1.0)

    monkeypatch.setattr(covey.engine.loaded, "measure_rates", measured)
    short = engine(lambda slots, budget, batches: slots > 200)
    assert short.rates().token_seconds == 1.0
    assert (short.limits.max_batched_tokens, short.limits.slots) == (64, 160)
    with pytest.raises(covey.ModelError, match="is loaded, but cannot run"):
        engine(lambda *_: True).rates()


def test_only_a_lack_of_room_is_one_for_the_kv_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    with pytest.raises(OutOfMemory, match="tokens of keys and values need"):
        KvCachePool(SPEC, device, torch.float32, 1 << 44)

    def broken(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(torch, "empty", broken)
    with pytest.raises(RuntimeError, match="the driver is gone"):
        KvCachePool(SPEC, device, torch.float32, 8)


def test_no_memory_on_the_host_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(np, "flatnonzero", full)
    with pytest.raises(covey.RunError, match=r"no memory left|out of memory"):
        run(Short(LIMITS, lambda *_: False))
