"""Sessions under random plans, KV caches, batches, failures and cancels, on symbolic prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from engine.plans import Plan, Run, brute_minimum, flows, plans


@examples(300)
@given(plan=plans() | flows())
def test_every_prompt_is_answered_once_whatever_the_kv_cache_and_the_batches(plan: Plan) -> None:
    run = Run(plan)
    with run.session:
        for _ in run.deliveries():
            pass
        run.check_answers()
    run.check_closed()


@examples(200)
@given(plan=plans(large_cache=True, exact=True))
def test_with_room_for_all_nothing_is_computed_twice(plan: Plan) -> None:
    run = Run(plan)
    with run.session:
        for _ in run.deliveries():
            pass
        run.check_answers()
    counters = run.session.counters
    assert counters.minimum_tokens == brute_minimum(plan)
    alone = sum(t.question.arity == 0 for t in plan.tickets)
    assert counters.fresh_tokens == counters.minimum_tokens, f"{alone} without documents"
    assert counters.evictions == 0


@examples(150)
@given(plan=plans(), fail_at=st.integers(0, 6))
def test_a_kernel_that_fails_leaves_no_slot(plan: Plan, fail_at: int) -> None:
    run = Run(plan, fail_at)
    failed = False
    try:
        with run.session:
            for _ in run.deliveries():
                pass
    except ZeroDivisionError:
        failed = True
    assert failed == (len(run.runner.batches) == fail_at and run.closed == 1 and failed)
    run.check_closed()


@examples(150)
@given(plan=plans(), every=st.integers(1, 3), stop=st.none() | st.integers(0, 6))
def test_dropped_iterators_lose_nothing_and_a_cancel_frees_all(
    plan: Plan, every: int, stop: int | None
) -> None:
    run = Run(plan)
    try:
        with run.session:
            for count in run.deliveries(lambda count: count % every == 0):
                if count == stop:
                    raise KeyboardInterrupt
            run.check_answers()
    except KeyboardInterrupt:
        pass
    run.check_closed()


@examples(150)
@given(plan=plans(steps=False))
def test_minimum_is_the_definition_in_any_kv_cache(plan: Plan) -> None:
    run = Run(plan)
    with run.session:
        for _ in run.deliveries():
            pass
    assert run.session.counters.minimum_tokens == brute_minimum(plan)
