"""Budgets: refused before anything runs, stopped while it does, answers kept."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import covey
from covey.errors import BudgetError, InputError, RunError
from covey.estimate.figures import Range
from covey.estimate.forecast import Forecast
from covey.execution.budget import Budget, BudgetGuard
from covey.testing import PlantedModel

ASK = "SELECT count(*) FROM t WHERE AI.IF(PROMPT('Good? {0}', body))"
# The second condition is asked only where the first is TRUE, which nobody knows before.
TWO = f"{ASK} AND AI.IF(PROMPT('Short? {{0}}', body))"


def connect(**limits: float) -> tuple[covey.Connection, PlantedModel]:
    model = PlantedModel(lambda question, documents: 0.9, fingerprint="nine")
    con = covey.connect(model=model, progress=False, **limits)  # type: ignore[arg-type]
    con.register("t", pa.table({"body": [f"text {i}" for i in range(40)]}))
    return con, model


def test_what_cannot_keep_to_it_is_refused_before_it_runs() -> None:
    con, model = connect(max_calls=39)
    with pytest.raises(BudgetError, match=r"at least 40 model calls, and max_calls allows 39") as e:
        con.run(ASK)
    assert isinstance(e.value, RunError) and "No model call was made" in str(e.value)
    assert model.calls == []


def test_a_limit_that_is_just_enough_is_kept() -> None:
    con, model = connect(max_calls=40)
    assert con.sql(ASK).fetchall() == [(40,)]
    assert len(model.calls) == 40


def test_a_query_that_may_keep_to_it_is_stopped_when_it_does_not() -> None:
    con, model = connect(max_calls=60)
    with pytest.raises(BudgetError, match="stopped: it would have made 80 model calls") as e:
        con.run(TWO)
    assert len(model.calls) == 40
    assert "40 prompts were answered, and those answers are kept" in str(e.value)


def test_tokens_are_counted_as_they_are_computed() -> None:
    con, _ = connect()
    exact = con.sql(ASK).estimate().tokens
    con, model = connect(max_tokens=int(exact.high) - 1)
    with pytest.raises(BudgetError, match=r"max_tokens"):
        con.run(ASK)
    assert model.calls == []
    con, model = connect(max_tokens=int(exact.high))
    assert con.sql(ASK).fetchall() == [(40,)]


@pytest.mark.parametrize("text", [ASK, f"{ASK}; SELECT 1"])
def test_results_in_batches_are_refused_before_they_run(text) -> None:
    con, model = connect(max_tokens=20)
    with pytest.raises(BudgetError, match="No model call was made"):
        next(con.sql(text).batches())
    assert model.calls == []
    rows = con.sql(ASK, max_tokens=100_000).batches()
    assert [piece.num_rows for piece in rows] == [1]


def test_the_model_is_not_loaded_to_refuse_where_its_answers_are_known(monkeypatch) -> None:
    con, model = connect(max_calls=39)
    monkeypatch.setattr(model, "open", lambda: pytest.fail("the model was loaded"))
    with pytest.raises(BudgetError):
        con.run(ASK)


def test_the_model_is_loaded_where_only_then_its_answers_are_known(monkeypatch) -> None:
    con, model = connect()
    con.run(ASK)
    profile = model.profile()
    con, model = connect(max_calls=39)
    monkeypatch.setattr(model, "profile", lambda: replace(profile, fingerprint=None))
    assert con.run(ASK).fetchall() == [(40,)]
    assert model.calls == []


def test_a_query_has_its_own_budget_or_the_connections() -> None:
    con, _ = connect(max_calls=10)
    assert con.sql(ASK, max_calls=100).fetchall() == [(40,)]
    with pytest.raises(BudgetError):
        con.sql(TWO, max_tokens=100_000).run()


def test_nothing_but_runs_is_refused() -> None:
    con, model = connect(max_calls=0)
    assert "40 prompts" in con.explain(ASK)
    assert con.sql(f"EXPLAIN {ASK}").fetchall()
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(40,)]
    with pytest.raises(BudgetError):
        con.run(f"EXPLAIN ANALYZE {ASK}")
    assert model.calls == []


def test_seconds_and_money_by_the_clock() -> None:
    now = [100.0]
    watch = BudgetGuard(Budget(max_seconds=10.0), None, clock=lambda: now[0])
    watch.start()
    now[0] += 9.0
    watch.after(5, 50)
    now[0] += 2.0
    with pytest.raises(BudgetError, match=r"took 11 s, and max_seconds allows 10 s. 6 prompts"):
        watch.after(1, 10)
    watch = BudgetGuard(Budget(max_cost=1.0), 3600.0, clock=lambda: now[0])
    watch.start()
    now[0] += 2.0
    with pytest.raises(BudgetError, match=r"cost \$2.00, and max_cost allows \$1.00"):
        watch.after(1, 10)


@pytest.mark.parametrize("name", ["seconds", "money"])
def test_the_low_estimate_decides(name) -> None:
    limit = {"seconds": "max_seconds", "money": "max_cost"}[name]
    found = Forecast(**{name: Range(5.0, 9.0, 20.0)})
    Budget(**{limit: 5.0}).refuse(found)
    with pytest.raises(BudgetError, match=limit):
        Budget(**{limit: 4.9}).refuse(found)


@pytest.mark.parametrize("wrong", [-1, "10", True, float("inf"), float("nan")])
def test_a_limit_is_a_number(wrong) -> None:
    with pytest.raises(InputError, match="max_calls is a number of at least 0"):
        Budget(max_calls=wrong)


def test_the_price_is_a_number(monkeypatch) -> None:
    with pytest.raises(InputError, match="price_per_hour"):
        connect(price_per_hour=-1.0)
    monkeypatch.setenv("COVEY_PRICE_PER_HOUR", "cheap")
    with pytest.raises(InputError, match="COVEY_PRICE_PER_HOUR"):
        connect()
    monkeypatch.setenv("COVEY_PRICE_PER_HOUR", "2.5")
    con, _ = connect()
    assert con.hourly == 2.5


def test_answers_of_earlier_runs_are_not_counted(cache_folder) -> None:
    model = PlantedModel(lambda question, documents: 0.9, fingerprint="nine")

    def reconnect(**limits: int) -> covey.Connection:
        con = covey.connect(model=model, progress=False, **limits)  # type: ignore[arg-type]
        con.register("t", pa.table({"body": [f"text {i}" for i in range(40)]}))
        return con

    stopped = reconnect(max_calls=60)
    with pytest.raises(BudgetError, match="40 prompts were answered, and those answers are kept"):
        stopped.run(TWO)
    stopped.close()
    # 80 calls are above the limit, but 40 of them have their answers.
    again = reconnect(max_calls=50)
    assert again.sql(TWO).fetchall() == [(40,)]
    assert len(model.calls) == 80
    assert again.sql(TWO).estimate().calls.high == 0
    text = again.sql(TWO).explain(analyze=True)
    assert "was: 0 prompts, 40 answered by earlier runs, 40 TRUE (100%)" in text


def test_pass_rates_are_known_from_answers_of_earlier_runs() -> None:
    con, _ = connect()
    con.register("u", pa.table({"body": [f"text {i}" for i in range(50)]}))
    con.run(ASK)
    text = con.explain(TWO.replace("FROM t", "FROM u"))
    # Fewer where a trial shows that the other question had better come first.
    assert "(0 to 10) prompts of 5 tokens" in text
    assert "selectivity about 100% (" in text and ", by earlier" in text
