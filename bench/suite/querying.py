"""A query for a peer that plans itself: tables, prompts, and the whole truth of what it asks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suite.plan import Filter, Join, Plan
from suite.tokens import CorpusTokens
from suite.truth import Truth


def write_query(folder: Path, plan: Plan, tokens: CorpusTokens, truth: Truth) -> None:
    """Write plan.json, truth.npz and tables/*.arrow beside a query's work.

    `plan.json` has relations, filters and joins in plan order with the tokens of their
    pieces, a join's for either document as the anchor; `truth.npz` the judgements of every
    predicate for all rows and the tokens of the joined tables' columns.
    """
    filters = [step for step in plan.steps if isinstance(step, Filter)]
    joins = [step for step in plan.steps if isinstance(step, Join)]
    unsupported = _unsupported(plan)
    described = {
        "unsupported": unsupported,
        "relations": [{"alias": scan.alias, "table": scan.table} for scan in plan.scans],
        "filters": [_filter(step, tokens) for step in filters],
        "joins": [_join(step, tokens) for step in joins],
    }
    (folder / "plan.json").write_text(json.dumps(described), encoding="utf-8")
    if unsupported:
        return
    arrays: dict[str, np.ndarray] = {}
    for step in (*filters, *joins):
        arrays[step.predicate.name] = truth.judged[step.predicate.name]
    for join in joins:
        for source in join.predicate.documents:
            column = tokens.column(source)
            arrays[f"tokens_flat_{source[0]}"] = column.flat
            arrays[f"tokens_offsets_{source[0]}"] = column.offsets
    np.savez(folder / "truth.npz", **arrays)
    (folder / "tables").mkdir(exist_ok=True)
    for name in {scan.table for scan in plan.scans}:
        table = tokens.corpus.tables[name]
        path = str(folder / "tables" / f"{name}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def _unsupported(plan: Plan) -> str | None:
    """What of a plan goes beyond filters and joins, None where nothing does."""
    kinds = {type(step).__name__ for step in plan.steps} - {"Filter", "Join"}
    if kinds:
        return " or ".join(sorted(kinds)).lower()
    if any(scan.tests for scan in plan.scans):
        return "column test"
    return "sort, limit or aggregate" if plan.tail.group or plan.tail.order else None


def _filter(step: Filter, tokens: CorpusTokens) -> dict[str, Any]:
    predicate = step.predicate
    return {
        "name": predicate.name,
        "alias": step.alias,
        "column": predicate.documents[0][1],
        "prompt": predicate.template,
        "selectivity": predicate.selectivity,
        "tail": tokens.pieces(predicate).tail.tolist(),
    }


def _join(step: Join, tokens: CorpusTokens) -> dict[str, Any]:
    predicate = step.predicate
    pieces = [tokens.pieces(replace(predicate, anchor=anchor)) for anchor in (0, 1)]
    return {
        "name": predicate.name,
        "columns": [
            f"{alias}.{column}"
            for alias, (_, column) in zip(step.aliases, predicate.documents, strict=True)
        ],
        "tables": [table for table, _ in predicate.documents],
        "on": [list(step.equal)] if step.equal else [],
        "prompt": predicate.template,
        "selectivity": predicate.selectivity,
        "instructions": [each.instruction.tolist() for each in pieces],
        "headings": [each.heading.tolist() for each in pieces],
        "tail": pieces[0].tail.tolist(),
    }
