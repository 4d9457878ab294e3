"""A plan as SQL: Covey's own, or DuckDB's with a plain function for each predicate."""

from __future__ import annotations

from collections.abc import Callable

from suite.plan import Classify, Filter, InList, Join, Plan, Score
from suite.predicates import Predicate

# (predicate, kind, expressions of its documents) -> SQL; kind is judge, score or label.
Call = Callable[[Predicate, str, list[str]], str]


def covey_call(predicate: Predicate, kind: str, arguments: list[str]) -> str:
    """The AI call of a predicate, with the planner's estimate and the anchor."""
    prompt = f"PROMPT({quoted(predicate.template)}, {', '.join(arguments)})"
    if kind == "label":
        labels = ", ".join(
            f"{{'label': {quoted(x.text)}, 'description': {quoted(x.description)}}}"
            if x.description
            else quoted(x.text)
            for x in predicate.labels  # a list has one type: all are described, or none
        )
        return f"AI.CLASSIFY({prompt}, [{labels}])"
    if kind == "score":
        return f"AI.SCORE({prompt})"
    options = [f"'selectivity': {predicate.selectivity}"] if predicate.selectivity else []
    options += [f"'anchor': {predicate.anchor}"] if len(arguments) > 1 else []
    struct = f", {{{', '.join(options)}}}" if options else ""
    return f"AI.IF({prompt}{struct})"


def planted_call(predicate: Predicate, kind: str, arguments: list[str]) -> str:
    """A call of a function that holds the planted truth."""
    return f"{function_name(predicate, kind)}({', '.join(arguments)})"


def function_name(predicate: Predicate, kind: str) -> str:
    """The name of a predicate's plain function."""
    return f"planted_{kind}_{predicate.name.lower()}"


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def to_sql(plan: Plan, call: Call = covey_call) -> str:
    """The statement that runs a plan."""
    return _Writer(plan, call).statement()


class _Writer:
    """One statement: FROM with its joins, WHERE in plan order, and the tail around it."""

    def __init__(self, plan: Plan, call: Call) -> None:
        self._plan = plan
        self._call = call

    def statement(self) -> str:
        tail = self._plan.tail
        if not tail.group:
            selected = ", ".join(self._selected(name) for name in self._plan.outputs)
            return self._block(selected) + self._ordered({})
        inner = list(tail.group) + [a.column for a in tail.aggregates if a.column]
        block = self._block(", ".join(self._selected(n) for n in dict.fromkeys(inner)))
        if not tail.aggregates:
            return block.replace("SELECT ", "SELECT DISTINCT ", 1) + self._ordered({})
        computed = {
            a.name: f"{a.function}({'DISTINCT ' if a.distinct else ''}"
            f"{'*' if a.column is None else _short(a.column)})"
            for a in tail.aggregates
        }
        shown = [
            f"{computed[_short(name)]} AS {_short(name)}"
            if _short(name) in computed
            else _short(name)
            for name in self._plan.outputs
        ]
        text = f"SELECT {', '.join(shown)}\nFROM (\n{block}\n) AS answered"
        text += f"\nGROUP BY {', '.join(_short(name) for name in tail.group)}"
        if tail.having is not None:
            name, op, value = tail.having
            text += f"\nHAVING {computed[name]} {op} {value}"
        return text + self._ordered(computed)

    def _block(self, selected: str) -> str:
        return f"SELECT {selected}\nFROM {self._from()}{self._where()}"

    def _ordered(self, computed: dict[str, str]) -> str:
        tail = self._plan.tail
        text = ""
        if tail.order:
            keys = [f"{_short(name)}{' DESC' if down else ''}" for name, down in tail.order]
            text += f"\nORDER BY {', '.join(keys)}"
        if tail.limit is not None:
            text += f"\nLIMIT {tail.limit}"
        return text + (f" OFFSET {tail.offset}" if tail.offset else "")

    def _from(self) -> str:
        first, *others = self._plan.scans
        text = f"{first.table} AS {first.alias}"
        joins = [step for step in self._plan.steps if isinstance(step, Join)]
        for scan, join in zip(others, joins, strict=True):
            conditions = [f"{join.equal[0]} = {join.equal[1]}"] if join.equal else []
            conditions.append(self._ask(join.predicate, "judge", join.aliases))
            text += f"\nJOIN {scan.table} AS {scan.alias} ON {' AND '.join(conditions)}"
        return text

    def _where(self) -> str:
        conditions = [
            f"{scan.alias}.{test.column} {test.op} {test.value}"
            for scan in self._plan.scans
            for test in scan.tests
        ]
        for step in self._plan.steps:
            if isinstance(step, Filter):
                conditions.append(self._ask(step.predicate, "judge", (step.alias,)))
            elif isinstance(step, InList):
                source = self._plan.classification(step.name)
                listed = ", ".join(quoted(label) for label in step.labels)
                asked = self._ask(source.predicate, "label", source.aliases)
                conditions.append(f"{asked} IN ({listed})")
        return "\nWHERE " + "\n  AND ".join(conditions) if conditions else ""

    def _selected(self, name: str) -> str:
        if any(scan.alias == name for scan in self._plan.scans):
            return f"{name}.id AS {name}"
        if "." in name:
            return f"{name} AS {_short(name)}"
        for step in self._plan.steps:
            if isinstance(step, Classify) and step.name == name:
                return f"{self._ask(step.predicate, 'label', step.aliases)} AS {name}"
            if isinstance(step, Score) and step.name == name:
                return f"{self._ask(step.predicate, 'score', (step.alias,))} AS {name}"
        raise KeyError(f"{self._plan.id}: no step gives the column {name}")

    def _ask(self, predicate: Predicate, kind: str, aliases: tuple[str, ...]) -> str:
        columns = [
            f"{alias}.{column}"
            for alias, (_, column) in zip(aliases, predicate.documents, strict=True)
        ]
        return self._call(predicate, kind, columns)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
