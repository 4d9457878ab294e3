"""The span pool under random plans, failures and cancels, and against Belady's bound."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from covey.engine.retention import RecomputeCost, Retention
from covey.engine.spans import Admission, Span, SpanPool
from covey.errors import InputError, RunError
from effort import examples, scaled
from forest.belady import fresh_token_bound
from spans.books import check_books

COST = RecomputeCost(token_seconds=1.0, pair_seconds=0.001)


def new_pool(capacity: int) -> SpanPool:
    return SpanPool(capacity, Retention(COST))


def place(pool: SpanPool, admission: Admission, *, pending: int = 0, reuse: float = 0.0) -> Span:
    """Place the path's next node, planned for."""
    span = pool.place(admission, pending=pending)
    pool.plan(span, reuse=reuse)
    return span


def grow(pool: SpanPool, parent: Span | None, lengths: list[int], **plan: float) -> list[Span]:
    """Admit, place and finish a path, its nodes planned for alike."""
    admission = pool.admit(parent, lengths)
    assert admission is not None
    spans = [place(pool, admission, **plan) for _ in lengths]
    pool.finish(admission)
    return spans


def slots_of(*spans: Span) -> list[int]:
    return [slot for s in spans for e in s.extents for slot in range(e.start, e.start + e.length)]


class PoolMachine(RuleBasedStateMachine):
    """Any order of calls that the contract allows, checked after each one."""

    @initialize(capacity=st.integers(1, 24))
    def start(self, capacity: int) -> None:
        self.pool = new_pool(capacity)
        self.admissions: list[Admission] = []

    def resident(self, pick: int) -> Span | None:
        spans = list(self.pool.spans())
        return spans[pick % len(spans)] if spans else None

    def on_the_way(self, span: Span) -> bool:
        """Whether an active admission runs through a span."""
        tops = [a.placed[-1] if a.placed else a.parent for a in self.admissions]
        return any(top is not None and span in top.path() for top in tops)

    @rule(pick=st.none() | st.integers(0, 99), lengths=st.lists(st.integers(1, 9), max_size=3))
    def admit(self, pick: int | None, lengths: list[int]) -> None:
        pool = self.pool
        parent = None if pick is None else self.resident(pick)
        above = 0 if parent is None else parent.depth + parent.length
        if above + sum(lengths) > pool.capacity:
            before = (pool.held, pool.kept, pool.reserved)
            with pytest.raises(RunError, match="KV slots"):
                pool.admit(parent, lengths)
            assert before == (pool.held, pool.kept, pool.reserved)
            return
        admission = pool.admit(parent, lengths)
        if admission is None:
            assert self.admissions, "refused though nothing else was in flight"
        else:
            self.admissions.append(admission)

    @precondition(lambda self: any(a.reserved for a in self.admissions))
    @rule(pick=st.integers(0, 99), pending=st.integers(0, 2), reuse=st.sampled_from([0, 0.3, 1]))
    def place(self, pick: int, pending: int, reuse: float) -> None:
        waiting = [a for a in self.admissions if a.reserved]
        admission = waiting[pick % len(waiting)]
        span = place(self.pool, admission, pending=pending, reuse=reuse)
        assert sum(e.length for e in span.extents) == span.length
        if len(span.extents) > 1:
            assert len(list(self.pool.spans())) > 1, "nothing stood in the way"

    @precondition(lambda self: self.admissions)
    @rule(pick=st.integers(0, 99))
    def finish(self, pick: int) -> None:
        admission = self.admissions.pop(pick % len(self.admissions))
        self.pool.finish(admission)
        with pytest.raises(RunError, match="admit the path again"):
            self.pool.finish(admission)

    @precondition(lambda self: self.admissions)
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        admission = self.admissions[pick % len(self.admissions)]
        others = [a for a in self.admissions if a is not admission]
        tops = [a.placed[-1] if a.placed else a.parent for a in others]
        stood_on = {span.number for top in tops if top is not None for span in top.path()}
        if stood_on & {span.number for span in admission.placed}:
            with pytest.raises(RunError, match="held by another admission"):
                self.pool.cancel(admission)
            assert admission.active
            return
        self.pool.cancel(admission)
        self.admissions.remove(admission)
        assert not any(span.resident for span in admission.placed)

    @rule(pick=st.integers(0, 99), reuse=st.sampled_from([0.0, 0.5]), pending=st.integers(0, 2))
    def plan(self, pick: int, reuse: float, pending: int) -> None:
        span = self.resident(pick)
        if span is not None:
            self.pool.plan(span, reuse=reuse, pending=pending)

    @rule(pick=st.integers(0, 99), length=st.integers(0, 9))
    def cut(self, pick: int, length: int) -> None:
        span = self.resident(pick)
        if span is None:
            return
        before, held = (span.depth, span.length, slots_of(span)), self.pool.held
        if not 0 < length < span.length:
            with pytest.raises(InputError, match="cannot be cut"):
                self.pool.cut(span, length)
            return
        upper = self.pool.cut(span, length)
        assert span.parent is upper and upper.children == {span.number: span}
        assert before == (upper.depth, upper.length + span.length, slots_of(upper, span))
        assert (held, span.resident) == (self.pool.held, True)

    @rule(pick=st.integers(0, 99))
    def done(self, pick: int) -> None:
        span = self.resident(pick)
        if span is None:
            return
        if not span.pending:
            with pytest.raises(RunError, match="no pending"):
                self.pool.done(span)
            return
        self.pool.done(span)

    @rule()
    def fail(self) -> None:
        spans, admissions = list(self.pool.spans()), self.admissions
        self.pool.release_all()
        self.admissions = []
        assert self.pool.free == self.pool.capacity and not list(self.pool.spans())
        assert not any(s.resident for s in spans) and not any(a.active for a in admissions)

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool, spans = self.pool, list(self.pool.spans())
        check_books(pool)
        assert 0 <= pool.reserved <= pool.free + pool.kept
        assert pool.held + pool.kept <= pool.peak
        assert pool.held == sum(s.length for s in spans if self.on_the_way(s))
        owners: Counter[int] = Counter()
        for span in spans:
            for start, length in span.extents:
                owners.update(range(start, start + length))
            above = span.parent
            assert span.depth == (above.depth + above.length if above else 0)
            assert above is None or (above.resident and span.number in above.children)
            # Nothing stays for no reason.
            assert span.wanted or span.children or self.on_the_way(span)
        assert not owners or max(owners.values()) == 1
        assert all(0 <= slot < pool.capacity for slot in owners)
        assert len(owners) + pool.free == pool.capacity


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=scaled(60), stateful_step_count=40)


def test_a_span_lives_until_its_last_pending_child_has_run() -> None:
    pool = new_pool(10)
    (span,) = grow(pool, None, [4], pending=2)
    assert (pool.held, pool.kept, pool.free) == (0, 4, 6)
    for left in (1, 0):
        (child,) = grow(pool, span, [3])
        assert not child.resident
        pool.done(span)
        assert span.resident == (left > 0)
    assert pool.free == 10


def test_ancestors_that_stayed_for_a_child_go_with_it() -> None:
    pool = new_pool(10)
    admission = pool.admit(None, [2, 3])
    assert admission is not None
    top, child = pool.place(admission), place(pool, admission, reuse=0.5)
    pool.finish(admission)
    assert top.resident and child.resident
    pool.plan(child, reuse=0.0)
    assert not top.resident and pool.free == 10


def test_the_least_saved_seconds_a_slot_goes_first() -> None:
    pool = new_pool(12)
    plans = {"likely": (0.9, 4), "rare": (0.1, 4), "sure": (1.0, 4)}
    spans = {}
    for key, (reuse, length) in plans.items():
        admission = pool.admit(None, [length])
        assert admission is not None
        spans[key] = place(pool, admission, reuse=reuse)
        pool.finish(admission)
    grow(pool, None, [3])
    assert [key for key, span in spans.items() if not span.resident] == ["rare"]
    assert pool.evictions == 1


def test_an_evicted_span_leaves_its_plan_to_the_one_above() -> None:
    pool = new_pool(8)
    admission = pool.admit(None, [3, 4])
    assert admission is not None
    top, child = pool.place(admission), place(pool, admission, pending=2, reuse=0.25)
    pool.finish(admission)
    grow(pool, None, [2])
    assert not child.resident and top.resident
    assert (top.pending, top.reuse) == (1, 0.25)


def test_neighbours_go_to_make_one_stretch() -> None:
    pool = new_pool(12)
    spans = [grow(pool, None, [2], reuse=0.5 + n / 20)[0] for n in range(6)]
    for span in (spans[1], spans[3], spans[5]):
        pool.plan(span, reuse=0.0)
    (long,) = grow(pool, None, [6], reuse=1.0)
    assert len(long.extents) == 1 and pool.split == 0
    assert [span.resident for span in spans] == [True, False, True, False, False, False]


def test_a_long_span_is_split_where_held_spans_stand_in_the_way() -> None:
    pool = new_pool(12)
    spans = [grow(pool, None, [2], reuse=1.0)[0] for _ in range(6)]
    holds = [pool.admit(span, []) for span in spans[1::2]]
    (long,) = grow(pool, None, [6], reuse=1.0)
    assert len(long.extents) == 3 and pool.split == 1
    assert all(hold is not None for hold in holds) and pool.held == 6


def test_two_paths_share_a_span_and_neither_frees_it_alone() -> None:
    pool = new_pool(10)
    first = pool.admit(None, [4, 1])
    assert first is not None
    shared = pool.place(first)
    second = pool.admit(shared, [2])
    assert second is not None
    pool.place(first)
    with pytest.raises(RunError, match="held by another admission"):
        pool.cancel(first)
    pool.finish(first)
    assert shared.resident and pool.held == 4
    pool.place(second)
    pool.finish(second)
    assert pool.free == 10


def test_a_cancelled_path_takes_what_was_kept_below_it_along() -> None:
    pool = new_pool(10)
    failing = pool.admit(None, [4])
    assert failing is not None
    span = place(pool, failing, reuse=1.0)
    (child,) = grow(pool, span, [3], reuse=1.0)
    assert child.resident and pool.kept == 3
    pool.cancel(failing)
    assert not child.resident and not span.resident and pool.free == 10
    check_books(pool)


def test_what_cannot_ever_fit_is_refused_and_what_cannot_fit_now_waits() -> None:
    pool = new_pool(10)
    with pytest.raises(RunError, match="needs as many KV slots"):
        pool.admit(None, [6, 5])
    (span,) = grow(pool, None, [6], reuse=1.0)
    with pytest.raises(RunError, match="needs as many KV slots"):
        pool.admit(span, [5])
    assert (pool.held, pool.kept, pool.reserved) == (0, 6, 0)
    running = pool.admit(None, [6])
    assert running is not None
    assert pool.admit(None, [5]) is None
    assert pool.admit(None, [4]) is not None
    pool.finish(running)
    assert pool.admit(None, [6]) is not None


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="at least one slot"):
        new_pool(0)
    pool = new_pool(4)
    with pytest.raises(InputError, match="at least one token"):
        pool.admit(None, [2, 0])
    admission = pool.admit(None, [2])
    assert admission is not None
    with pytest.raises(InputError, match="must be 0 or more"):
        pool.place(admission, pending=-1)
    span = pool.place(admission)
    with pytest.raises(InputError, match="must be 0 or more"):
        pool.plan(span, reuse=-0.5)
    with pytest.raises(RunError, match="placed to its end"):
        pool.place(admission)
    stranger = new_pool(4)
    with pytest.raises(RunError):
        stranger.finish(admission)
    pool.finish(admission)
    for change in (pool.done, pool.plan):
        with pytest.raises(RunError, match="not resident"):
            change(span)


def run_visits(pool: SpanPool, parent: list[int], length: list[int], visits: list[int]) -> int:
    """Visit nodes one by one, keeping what comes back; return the tokens computed."""
    children = Counter(visits)  # what each node has pending: its own visits first
    left = Counter[int]()
    for node, times in children.items():
        while node >= 0:
            left[node] += times
            node = parent[node]
    resident: dict[int, Span] = {}
    fresh = 0
    for node in visits:
        path = []
        while node >= 0:
            path.append(node)
            left[node] -= 1
            node = parent[node]
        path.reverse()
        known = [n for n in path if n in resident and resident[n].resident]
        missing = path[len(known) :]
        above = resident[known[-1]] if known else None
        admission = pool.admit(above, [length[n] for n in missing])
        assert admission is not None
        for n in missing:
            resident[n] = place(pool, admission, reuse=float(left[n] > 0))
            fresh += length[n]
        pool.finish(admission)
        for n in reversed(path):
            if resident[n].resident:
                pool.plan(resident[n], reuse=float(left[n] > 0))
        check_books(pool)
    assert pool.free == pool.capacity
    return fresh


@examples(60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 30))
def test_fresh_tokens_lie_between_beladys_bound_and_the_minimum(
    seed: int, count: int, spare: int
) -> None:
    rng = random.Random(seed)
    parent = [rng.randrange(-1, n) if n else -1 for n in range(count)]
    length = [rng.randint(1, 6) for _ in range(count)]
    visits = [rng.randrange(count) for _ in range(rng.randint(1, 25))]
    depth: list[int] = []
    for n in range(count):
        depth.append((depth[parent[n]] if parent[n] >= 0 else 0) + length[n])
    pool = new_pool(max(depth) + spare)
    fresh = run_visits(pool, parent, length, visits)
    bound = fresh_token_bound(parent, length, [[v] for v in visits], pool.capacity)
    touched = {n for v in visits for n in chain(parent, v)}
    minimum = sum(length[n] for n in touched)
    assert minimum <= bound <= fresh
    if pool.capacity >= sum(length):
        assert fresh == minimum and pool.evictions == 0


def chain(parent: list[int], node: int) -> list[int]:
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parent[node]
    return nodes


def test_peak_is_the_most_ever_resident() -> None:
    pool = new_pool(20)
    grow(pool, None, [5, 6])
    grow(pool, None, [7])
    assert pool.peak == 11 and pool.free == 20
