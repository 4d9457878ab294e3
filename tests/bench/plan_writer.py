"""Plans in the benchmark's exchange format, written: the other half of `substrait`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suite.plan import Classify, Filter, InList, Join, Plan, Scan, Score, Step
from suite.predicates import Predicate
from suite.quail_b.substrait import COMPARISONS

Json = dict[str, Any]
_URNS = {
    "extension:org.fsdatalab.quail_b:functions_ai": 1,
    "extension:io.substrait:functions_comparison": 2,
    "extension:io.substrait:functions_boolean": 3,
    "extension:io.substrait:functions_aggregate_generic": 4,
}
_FUNCTIONS = {
    "ai_filter:str_str": 1,
    "ai_join:str_str_str": 1,
    "ai_score:str_str": 1,
    "ai_classify:str_str_list_list": 1,
    "ai_classify:str_str_str_list_list": 1,
    "gt:any_any": 2,
    "gte:any_any": 2,
    "lt:any_any": 2,
    "lte:any_any": 2,
    "equal:any_any": 2,
    "and:bool": 3,
    "count:any": 4,
    "min:any": 4,
    "max:any": 4,
    "avg:any": 4,
}
_ANCHORS = {name: number for number, name in enumerate(_FUNCTIONS, 1)}
_NAMES = {op: f"{name}:any_any" for name, op in COMPARISONS.items()}


def write_plan(plan: Plan, columns: dict[str, tuple[str, ...]]) -> Json:
    """A plan as Substrait's JSON values.

    Args:
        plan: the query.
        columns: the columns of each table, the id first.
    """
    return _Writer(plan, columns).document()


@dataclass
class _Rel:
    """A relation and its output columns by place."""

    body: Json
    columns: list[str]


class _Writer:
    def __init__(self, plan: Plan, columns: dict[str, tuple[str, ...]]) -> None:
        self._plan = plan
        self._tables = columns
        self._numbers: dict[str, int] = {}

    def document(self) -> Json:
        rel = self._tail(self._body())
        names = [_qualified(name, self._plan) for name in self._plan.outputs]
        places = [rel.columns.index(name) for name in names]
        emitted = [len(rel.columns) + i for i in range(len(places))]
        project = {
            "common": {"emit": {"output_mapping": emitted}},
            "input": rel.body,
            "expressions": [_field(place) for place in places],
        }
        used = [{"extension_urn_anchor": n, "urn": urn} for urn, n in _URNS.items()]
        functions = [
            {
                "extension_function": {
                    "extension_urn_reference": urn,
                    "function_anchor": _ANCHORS[name],
                    "name": name,
                }
            }
            for name, urn in _FUNCTIONS.items()
        ]
        return {
            "version": {"minor_number": 103},
            "extension_urns": used,
            "extensions": functions,
            "relations": [{"root": {"input": {"project": project}, "names": names}}],
        }

    def _body(self) -> _Rel:
        """Scans with their own steps, joined left-deep, then what follows the joins."""
        plan = self._plan
        joins = [step for step in plan.steps if isinstance(step, Join)]
        rel = self._relation(plan.scans[0])
        for scan, join in zip(plan.scans[1:], joins, strict=True):
            rel = self._join(join, rel, self._relation(scan))
        for step in plan.steps:
            if isinstance(step, Classify) and len(step.aliases) > 1:
                rel = self._computed(step, rel)
        return rel

    def _relation(self, scan: Scan) -> _Rel:
        names = self._tables[scan.table]
        read = {
            "common": self._common(scan.alias),
            "base_schema": {"names": list(names)},
            "named_table": {"names": [scan.table]},
        }
        rel = _Rel({"read": read}, [f"{scan.alias}.{name}" for name in names])
        tests = [
            _call(
                _NAMES[test.op],
                _field(rel.columns.index(f"{scan.alias}.{test.column}")),
                {"literal": {"i64": str(test.value)}},
            )
            for test in scan.tests
        ]
        if tests:
            condition = tests[0] if len(tests) == 1 else _call("and:bool", *tests)
            rel = self._filtered("where", rel, condition)
        for step in self._plan.steps:
            rel = self._own(step, scan.alias, rel)
        return rel

    def _own(self, step: Step, alias: str, rel: _Rel) -> _Rel:
        """A step of one relation put above it; others leave it as it is."""
        match step:
            case Filter() if step.alias == alias:
                asked = self._asked("ai_filter:str_str", step.predicate, (alias,), rel)
                return self._filtered("filter", rel, asked)
            case Classify() if step.aliases == (alias,):
                return self._computed(step, rel)
            case Score() if step.alias == alias:
                return self._computed(step, rel)
            case InList() if f"{alias}.{step.name}" in rel.columns:
                options = [{"literal": {"string": label}} for label in step.labels]
                value = _field(rel.columns.index(f"{alias}.{step.name}"))
                condition = {"singular_or_list": {"value": value, "options": options}}
                return self._filtered("in-list", rel, condition)
        return rel

    def _join(self, step: Join, left: _Rel, right: _Rel) -> _Rel:
        rel = _Rel({}, left.columns + right.columns)
        condition = self._asked("ai_join:str_str_str", step.predicate, step.aliases, rel)
        if step.equal is not None:
            sides = (_field(rel.columns.index(name)) for name in step.equal)
            condition = _call("and:bool", _call("equal:any_any", *sides), condition)
        rel.body = {
            "join": {
                "common": self._named("join"),
                "left": left.body,
                "right": right.body,
                "expression": condition,
                "type": "JOIN_TYPE_INNER",
            }
        }
        return rel

    def _computed(self, step: Classify | Score, rel: _Rel) -> _Rel:
        aliases = step.aliases if isinstance(step, Classify) else (step.alias,)
        texts = "_".join(["str"] * (1 + len(aliases)))
        if isinstance(step, Classify):
            kind, function = "classify", f"ai_classify:{texts}_list_list"
        else:
            kind, function = "score", f"ai_score:{texts}"
        columns = [*rel.columns, f"{aliases[0]}.{step.name}"]
        common = self._named(kind)
        common["hint"]["output_names"] = columns
        asked = self._asked(function, step.predicate, aliases, rel)
        return _Rel(
            {"project": {"common": common, "input": rel.body, "expressions": [asked]}}, columns
        )

    def _asked(
        self, function: str, predicate: Predicate, aliases: tuple[str, ...], rel: _Rel
    ) -> Json:
        arguments: list[Json] = [{"literal": {"string": predicate.template}}]
        for alias, (_, column) in zip(aliases, predicate.documents, strict=True):
            arguments.append(_field(rel.columns.index(f"{alias}.{column}")))
        if predicate.labels:
            for texts in (
                [label.text for label in predicate.labels],
                [label.description or "" for label in predicate.labels],
            ):
                arguments.append({"literal": {"list": {"values": [{"string": t} for t in texts]}}})
        return _call(function, *arguments)

    def _filtered(self, kind: str, rel: _Rel, condition: Json) -> _Rel:
        body = {"common": self._named(kind), "input": rel.body, "condition": condition}
        return _Rel({"filter": body}, rel.columns)

    def _tail(self, rel: _Rel) -> _Rel:
        tail = self._plan.tail
        if tail.group:
            rel = self._aggregated(rel)
        if tail.having is not None:
            name, op, value = tail.having
            place = _field(rel.columns.index(name))
            condition = _call(_NAMES[op], place, {"literal": {"i32": value}})
            rel = self._filtered("having", rel, condition)
        if tail.order:
            sorts = [
                {
                    "expr": _field(rel.columns.index(_qualified(name, self._plan))),
                    "direction": f"SORT_DIRECTION_{'DESC' if down else 'ASC'}_NULLS_LAST",
                }
                for name, down in tail.order
            ]
            body = {"common": self._named("sort"), "input": rel.body, "sorts": sorts}
            rel = _Rel({"sort": body}, rel.columns)
        if tail.limit is not None:
            body = {"common": self._named("fetch"), "input": rel.body}
            body |= {"offset": str(tail.offset), "count": str(tail.limit)}
            rel = _Rel({"fetch": body}, rel.columns)
        return rel

    def _aggregated(self, rel: _Rel) -> _Rel:
        tail = self._plan.tail
        keys = [_qualified(name, self._plan) for name in tail.group]
        measures = []
        for each in tail.aggregates:
            measure: Json = {"function_reference": _ANCHORS[f"{each.function}:any"]}
            if each.column is not None:
                place = rel.columns.index(_qualified(each.column, self._plan))
                measure["arguments"] = [{"value": _field(place)}]
            if each.distinct:
                measure["invocation"] = "AGGREGATION_INVOCATION_DISTINCT"
            measures.append({"measure": measure})
        columns = keys + [each.name for each in tail.aggregates]
        common = self._named("aggregate")
        common["hint"]["output_names"] = columns
        body = {
            "common": common,
            "input": rel.body,
            "grouping_expressions": [_field(rel.columns.index(key)) for key in keys],
            "groupings": [{"expression_references": list(range(len(keys)))}],
            "measures": measures,
        }
        return _Rel({"aggregate": body}, columns)

    def _named(self, kind: str) -> Json:
        """Operators number in post-order: inputs are written before what stands above."""
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return self._common(f"{kind}-{self._numbers[kind]}")

    def _common(self, alias: str) -> Json:
        return {"direct": {}, "hint": {"alias": alias}}


def _field(place: int) -> Json:
    # A zero is a field's default, which is not written.
    reference = {"field": place} if place else {}
    return {"selection": {"direct_reference": {"struct_field": reference}, "root_reference": {}}}


def _call(function: str, *arguments: Json) -> Json:
    return {
        "scalar_function": {
            "function_reference": _ANCHORS[function],
            "arguments": [{"value": argument} for argument in arguments],
        }
    }


def _qualified(name: str, plan: Plan) -> str:
    """The column that an output of a plan stands for."""
    if any(scan.alias == name for scan in plan.scans):
        return f"{name}.id"
    for step in plan.steps:
        if isinstance(step, Classify | Score) and step.name == name:
            return f"{step.aliases[0] if isinstance(step, Classify) else step.alias}.{name}"
    return name
