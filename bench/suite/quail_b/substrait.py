"""Plans in the benchmark's exchange format, Substrait's JSON, read and written.

Scans, filters, inner joins, projections that add one label or score, aggregates, sorts and
fetches are read; anything else is refused by name. A column is known as alias.column, a label
or score by its own name. Keys may be written in camelCase or snake_case, as protocol buffers
allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from covey.errors import InputError
from covey.prompts.question import Label
from suite.plan import (
    Aggregate,
    Classify,
    Filter,
    InList,
    Join,
    Plan,
    Scan,
    Score,
    Step,
    Tail,
    Test,
)
from suite.predicates import Predicate

Json = dict[str, Any]
COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "equal": "="}
_OPPOSITE = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}


def read_plan(source: bytes | str | Mapping[str, Any], query: str) -> Plan:
    """Read a plan.

    Args:
        source: JSON as text or as values; of a protocol buffer, what `MessageToDict` gives.
        query: the id that the plan gets.

    Raises:
        InputError: it is no such plan, or has a form that is not read.
    """
    try:
        values = json.loads(source) if isinstance(source, bytes | str) else source
        return _Reader(_snake(values), query).plan()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"The plan of {query} cannot be read: {error!r}.") from None


def _snake(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", k).lower(): _snake(v) for k, v in value.items()}
    return [_snake(each) for each in value] if isinstance(value, list) else value


@dataclass
class _Read:
    """What a subtree gives: relations, steps, and its output columns by place."""

    scans: list[Scan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    tail: Tail = field(default_factory=Tail)


class _Reader:
    def __init__(self, values: Json, query: str) -> None:
        self._query = query
        self._values = values
        self._functions = {
            item["extension_function"]["function_anchor"]: item["extension_function"]["name"]
            for item in values.get("extensions", ())
        }
        self._tables: dict[str, str] = {}

    def plan(self) -> Plan:
        root = self._values["relations"][0]["root"]
        project = root["input"]["project"]
        read = self._rel(project["input"])
        outputs = [self._column(e, read) for e in project["expressions"]]
        tail = read.tail
        return Plan(
            self._query,
            tuple(read.scans),
            tuple(read.steps),
            tuple(_output(name) for name in outputs),
            replace(tail, group=tuple(_output(name) for name in tail.group)),
        )

    def _rel(self, rel: Json) -> _Read:
        ((kind, body),) = rel.items()
        readers = {
            "read": self._scan,
            "filter": self._filter,
            "join": self._join,
            "project": self._project,
            "aggregate": self._aggregate,
            "sort": self._sort,
            "fetch": self._fetch,
        }
        if kind not in readers:
            raise InputError(f"The plan of {self._query} has a relation {kind!r}: not supported.")
        return readers[kind](body)

    def _scan(self, body: Json) -> _Read:
        alias = body["common"]["hint"]["alias"]
        table = body["named_table"]["names"][-1]
        self._tables[alias] = table
        columns = [f"{alias}.{name}" for name in body["base_schema"]["names"]]
        return _Read([Scan(alias, table)], [], columns)

    def _filter(self, body: Json) -> _Read:
        read = self._rel(body["input"])
        condition = body["condition"]
        if "singular_or_list" in condition:
            listed = condition["singular_or_list"]
            labels = tuple(option["literal"]["string"] for option in listed["options"])
            read.steps.append(InList(_short(self._column(listed["value"], read)), labels))
            return read
        for name, arguments in self._conditions(condition):
            if name.startswith("ai_filter"):
                alias = self._column(arguments[1], read).partition(".")[0]
                read.steps.append(Filter(self._predicate(arguments, 1, read), alias))
            else:
                self._compare(name, arguments, read)
        return read

    def _compare(self, name: str, arguments: list[Json], read: _Read) -> None:
        """A test of a column: of a scan, or of an aggregate, which is HAVING."""
        op = COMPARISONS[name.partition(":")[0]]
        if "literal" in arguments[0]:
            arguments, op = arguments[::-1], _OPPOSITE[op]
        column, value = self._column(arguments[0], read), _integer(arguments[1]["literal"])
        if read.tail.aggregates:
            read.tail = replace(read.tail, having=(column, op, value))
            return
        alias, _, short = column.partition(".")
        read.scans = [
            replace(scan, tests=(*scan.tests, Test(short, op, value)))
            if scan.alias == alias
            else scan
            for scan in read.scans
        ]

    def _join(self, body: Json) -> _Read:
        if body.get("type", "JOIN_TYPE_INNER") not in ("JOIN_TYPE_INNER", 1):
            raise InputError(f"The plan of {self._query} has a join that is not inner.")
        left, right = self._rel(body["left"]), self._rel(body["right"])
        read = _Read(
            left.scans + right.scans, left.steps + right.steps, left.columns + right.columns
        )
        asked: Join | None = None
        equal: tuple[str, str] | None = None
        for name, arguments in self._conditions(body["expression"]):
            if name.startswith("ai_join"):
                predicate = self._predicate(arguments, 2, read)
                first, second = (self._column(a, read).partition(".")[0] for a in arguments[1:3])
                asked = Join(predicate, (first, second))
            elif name.startswith("equal"):
                equal = (self._column(arguments[0], read), self._column(arguments[1], read))
            else:
                raise InputError(f"The plan of {self._query} joins by {name}: not supported.")
        if asked is None:
            raise InputError(f"The plan of {self._query} has a join without ai_join.")
        read.steps.append(replace(asked, equal=equal))
        return read

    def _project(self, body: Json) -> _Read:
        """One label or score more."""
        read = self._rel(body["input"])
        names = body["common"]["hint"]["output_names"][len(read.columns) :]
        for name, expression in zip(names, body["expressions"], strict=True):
            called, arguments = self._call(expression)
            short = _short(name)
            if called.startswith("ai_score"):
                alias = self._column(arguments[1], read).partition(".")[0]
                read.steps.append(Score(self._predicate(arguments, 1, read), alias, short))
            elif called.startswith("ai_classify"):
                count = len(arguments) - 3
                predicate = self._predicate(arguments, count, read)
                own = [self._column(a, read).partition(".")[0] for a in arguments[1 : 1 + count]]
                read.steps.append(Classify(predicate, tuple(own), short))
            else:
                raise InputError(f"The plan of {self._query} computes {called}: not supported.")
            read.columns.append(short)
        return read

    def _aggregate(self, body: Json) -> _Read:
        read = self._rel(body["input"])
        keys = [self._column(e, read) for e in body.get("grouping_expressions", ())]
        names = body["common"]["hint"]["output_names"][len(keys) :]
        found = []
        for name, item in zip(names, body.get("measures", ()), strict=True):
            measure = item["measure"]
            function = self._functions[measure["function_reference"]].partition(":")[0]
            values = [argument["value"] for argument in measure.get("arguments", ())]
            column = self._column(values[0], read) if values else None
            distinct = "DISTINCT" in str(measure.get("invocation", ""))
            found.append(Aggregate(function, column, _short(name), distinct))
        read.columns = keys + [aggregate.name for aggregate in found]
        read.tail = Tail(group=tuple(keys), aggregates=tuple(found))
        return read

    def _sort(self, body: Json) -> _Read:
        read = self._rel(body["input"])
        order = tuple(
            (_output(self._column(each["expr"], read)), "DESC" in str(each["direction"]))
            for each in body["sorts"]
        )
        read.tail = replace(read.tail, order=order)
        return read

    def _fetch(self, body: Json) -> _Read:
        read = self._rel(body["input"])
        offset, limit = (_fetched(body, name) for name in ("offset", "count"))
        read.tail = replace(read.tail, offset=offset or 0, limit=limit)
        return read

    def _column(self, expression: Json, read: _Read) -> str:
        place = expression["selection"]["direct_reference"]["struct_field"].get("field", 0)
        return read.columns[place]

    def _call(self, expression: Json) -> tuple[str, list[Json]]:
        call = expression["scalar_function"]
        arguments = [argument["value"] for argument in call["arguments"]]
        return self._functions[call["function_reference"]], arguments

    def _conditions(self, expression: Json) -> list[tuple[str, list[Json]]]:
        name, arguments = self._call(expression)
        if name.partition(":")[0] != "and":
            return [(name, arguments)]
        return [each for argument in arguments for each in self._conditions(argument)]

    def _predicate(self, arguments: list[Json], count: int, read: _Read) -> Predicate:
        """The question of a call: its prompt, its documents and, for labels, the lists."""
        template = arguments[0]["literal"]["string"]
        documents = []
        for argument in arguments[1 : 1 + count]:
            alias, _, column = self._column(argument, read).partition(".")
            documents.append((self._tables[alias], column))
        labels: tuple[Label, ...] = ()
        if len(arguments) > 1 + count:
            texts, described = (_strings(each) for each in arguments[1 + count :])
            labels = tuple(Label(t, d or None) for t, d in zip(texts, described, strict=True))
        return Predicate(template, template, tuple(documents), labels=labels)


def _strings(argument: Json) -> list[str]:
    values = argument["literal"]["list"]["values"]
    return [value.get("string", "") for value in values]


def _fetched(body: Json, name: str) -> int | None:
    """An offset or count, as a number or as a literal expression."""
    if f"{name}_expr" in body:
        return _integer(body[f"{name}_expr"]["literal"])
    return int(body[name]) if name in body else None


def _integer(literal: Json) -> int:
    kind = next(k for k in ("i8", "i16", "i32", "i64") if k in literal)
    return int(literal[kind])


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _output(column: str) -> str:
    """The name of an output: an id is its alias."""
    alias, _, short = column.partition(".")
    return alias if short == "id" else column
