"""The benchmark's own entry point, so that its owners' harness can run Covey.

    import quail_b
    from suite.quail_b.adapter import entry_point
    quail_b.run(entry_point("qwen3-4b-fp8"), queries=["IMDB-1"], scale_factor=0.1, …)

Needs `bench/` on the path and the benchmark's package, which brings its data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import covey
from covey.engine.base import ModelSource
from covey.engine.local import LocalModel
from covey.errors import InputError
from covey.execution.report import Report
from suite.plan import Join, Plan
from suite.predicates import Predicate
from suite.quail_b.noted import NotedModel
from suite.quail_b.substrait import read_plan
from suite.sql import to_sql

Tables = Mapping[str, pa.Table]
Source = bytes | str | Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """A query that ran.

    Attributes:
        rows: the result, a column an output, named as the plan names it.
        seconds: from the SQL to the rows; the model was loaded before.
        measurements: what Covey reports, and by the harness's names `input_tokens` and
            `fresh_tokens`.
        plan: what ran, the longer documents first.
    """

    rows: pa.Table
    seconds: float
    measurements: dict[str, Any]
    plan: Plan


def run_plan(
    connection: covey.Connection,
    query: str,
    source: bytes | str | Mapping[str, Any],
    tables: Tables,
) -> Ran:
    """Run a plan over the benchmark's tables.

    Args:
        connection: an open connection; the tables are registered on it.
        query: the query's id.
        source: the plan, see `substrait.read_plan`.
        tables: by physical name.

    Raises:
        InputError: the plan cannot be read.
        QueryError, RunError, ModelError: as any query.
    """
    plan = with_anchors(read_plan(source, query), tables)
    for name in {scan.table for scan in plan.scans}:
        connection.register(name, tables[name])
    connection.engine()
    started = time.perf_counter()
    asked = connection.sql(to_sql(plan))
    rows = asked.arrow()
    seconds = time.perf_counter() - started
    return Ran(rows, seconds, _measured(asked.report), plan)


def _measured(report: Report) -> dict[str, Any]:
    counters = report.counters
    return {
        **report.to_dict(),
        "input_tokens": counters.requested_tokens,
        "fresh_tokens": counters.fresh_tokens,
    }


def with_anchors(plan: Plan, tables: Tables) -> Plan:
    """Put the longer document first in every pair: it is computed once for all partners.

    Plans declare no anchor, and the benchmark lets the engine choose.
    """

    def anchored(predicate: Predicate) -> Predicate:
        lengths = [_mean_length(tables[table][column]) for table, column in predicate.documents]
        return replace(predicate, anchor=lengths.index(max(lengths)))

    # A pair's classification goes by its first document: the benchmark fixes that anchor.
    steps = tuple(
        replace(step, predicate=anchored(step.predicate)) if isinstance(step, Join) else step
        for step in plan.steps
    )
    return replace(plan, steps=steps)


def _mean_length(texts: pa.ChunkedArray) -> float:
    return pc.mean(pc.utf8_length(texts)).as_py() or 0.0


def entry_point(model: str | ModelSource) -> Callable[[Any, Tables], Any]:
    """`run_query(QuerySpec, tables) -> RunOutput`, with a model that is loaded once.

    Answers are given by operator. Prompt pieces are not: with them the harness counts its own
    minimum, which by some of its definitions is above what an engine computes that shares
    partners' openings, and refuses the run.

    Args:
        model: what `covey.connect` takes.

    Raises:
        InputError: the benchmark's package is not installed.
    """
    if find_spec("quail_b") is None:
        raise InputError(
            "The benchmark's package (quail_b) is not installed in this environment; without it"
            " use `run_plan`, or the made tables: covey bench suite run."
        )
    from quail_b.scoring import RunOutput

    noted = NotedModel(LocalModel(model) if isinstance(model, str) else model)
    connection = covey.connect(noted, progress=False, cache=False)
    connection.engine()

    def run_query(spec: Any, tables: Tables) -> Any:
        noted.notes.clear()
        ran = run_plan(connection, spec.id, plan_values(spec.plan), tables)
        answers = noted.notes.tables(ran.plan, tables)
        labelled = {"classify_answers": answers["classify"]} if answers["classify"] else {}
        return RunOutput(
            filter_answers=answers["filter"],
            join_answers=answers["join"],
            rows=ran.rows,
            runtime_s=ran.seconds,
            measurements=ran.measurements,
            **labelled,
        )

    return run_query


def plan_values(plan: Any) -> str | Mapping[str, Any]:
    """A QuerySpec's plan in a form that `read_plan` takes: JSON, or a message's values.

    Args:
        plan: JSON text or values, a protocol buffer message, or its bytes.
    """
    if isinstance(plan, str | Mapping):
        return plan
    if isinstance(plan, bytes):
        if plan.lstrip().startswith(b"{"):
            return plan.decode()
        from substrait import plan_pb2

        plan = plan_pb2.Plan.FromString(plan)
    from google.protobuf.json_format import MessageToDict

    values: dict[str, Any] = MessageToDict(plan, preserving_proto_field_name=True)
    return values
