"""Queries as trees that print twice: in Covey's SQL, and in the oracle's.

A `Sql` is a run of plain text and `Call`s. All but the calls reads the same for both,
so a generator writes ordinary SQL and puts calls where expressions stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a call gives: BOOLEAN, DOUBLE, VARCHAR."""

    IF = "AI.IF"
    SCORE = "AI.SCORE"
    CLASSIFY = "AI.CLASSIFY"


def quoted(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL text with AI calls in it."""

    parts: tuple[str | Call, ...]

    def covey(self) -> str:
        return "".join(p if isinstance(p, str) else p.covey() for p in self.parts)

    def oracle(self) -> str:
        return "".join(p if isinstance(p, str) else p.oracle() for p in self.parts)

    def with_calls_as(self, text: str) -> Sql:
        """The same with every call replaced by a plain text."""
        return Sql(("".join(p if isinstance(p, str) else text for p in self.parts),))

    def __repr__(self) -> str:
        return self.covey()


def sql(*parts: str | Call | Sql) -> Sql:
    """The parts one after another."""
    flat: list[str | Call] = []
    for part in parts:
        if isinstance(part, Sql):
            flat.extend(part.parts)
        else:
            flat.append(part)
    return Sql(tuple(flat))


def joined(between: str, items: list[Sql]) -> Sql:
    """The items with text between them."""
    parts: list[str | Sql] = []
    for i, item in enumerate(items):
        parts.extend([between, item] if i else [item])
    return sql(*parts)


@dataclass(frozen=True, slots=True)
class Template:
    """PROMPT('text {0} {1}', a, b)."""

    text: str
    arguments: tuple[Sql, ...]

    def covey(self) -> str:
        return f"PROMPT({', '.join([quoted(self.text), *(a.covey() for a in self.arguments)])})"

    def template(self) -> str:
        return self.text

    def documents(self) -> tuple[Sql, ...]:
        return self.arguments


@dataclass(frozen=True, slots=True)
class Pieces:
    """('text ', a, ' text'): braces are plain text here."""

    pieces: tuple[str | Sql, ...]

    def covey(self) -> str:
        shown = [quoted(p) if isinstance(p, str) else p.covey() for p in self.pieces]
        return f"({', '.join(shown)})"

    def template(self) -> str:
        text, count = "", 0
        for piece in self.pieces:
            if isinstance(piece, str):
                text += piece.replace("{", "{{").replace("}", "}}")
            else:
                text += f"{{{count}}}"
                count += 1
        return text

    def documents(self) -> tuple[Sql, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Sql))


@dataclass(frozen=True, slots=True)
class Bare:
    """A column or string expression that is the whole prompt."""

    argument: Sql

    def covey(self) -> str:
        return self.argument.covey()

    def template(self) -> str:
        return "{0}"

    def documents(self) -> tuple[Sql, ...]:
        return (self.argument,)


Prompt = Template | Pieces | Bare


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a call.

    Attributes:
        threshold: of AI.IF, None for the default of 0.5.
        selectivity: a hint, which must not change any row.
        named: how they are written: " => " or " := " for named arguments, "" for a struct.
    """

    threshold: float | None = None
    selectivity: float | None = None
    named: str = ""

    def covey(self) -> list[str]:
        """The arguments that give them, none for the defaults."""
        pairs = [("threshold", self.threshold), ("selectivity", self.selectivity)]
        given = [(name, value) for name, value in pairs if value is not None]
        if self.named:
            return [f"{name}{self.named}{value!r}" for name, value in given]
        inside = ", ".join(f"'{name}': {value!r}" for name, value in given)
        return [f"{{{inside}}}"] if given else []


@dataclass(frozen=True, slots=True)
class Call:
    """One AI call.

    Attributes:
        kind: which function.
        name: the spelling, for example AI_FILTER.
        prompt: what is asked about what. A classification whose prompt is `Bare` has
            no task text; only its document counts.
        options: what else is given.
        labels: of AI.CLASSIFY.
    """

    kind: Kind
    name: str
    prompt: Prompt
    options: Options = Options()
    labels: tuple[str, ...] = ()

    def covey(self) -> str:
        arguments = [self.prompt.covey()]
        if self.kind is Kind.CLASSIFY:
            arguments.append(_list(self.labels))
        arguments.extend(self.options.covey())
        return f"{self.name}({', '.join(arguments)})"

    def template(self) -> str:
        """The text that the model sees, with {n} for documents."""
        text = self.prompt.template()
        # A classification of one document and no words has no task text.
        return "" if self.kind is Kind.CLASSIFY and text == "{0}" else text

    def documents(self) -> str:
        """The documents as a list for the oracle."""
        casts = [f"CAST({a.oracle()} AS VARCHAR)" for a in self.prompt.documents()]
        return f"[{', '.join(casts)}]::VARCHAR[]"

    def oracle(self) -> str:
        text = quoted(self.template())
        if self.kind is Kind.CLASSIFY:
            return f"planted_label({text}, {_list(self.labels)}, {self.documents()})"
        score = f"planted_score({text}, {self.documents()})"
        if self.kind is Kind.SCORE:
            return score
        threshold = 0.5 if self.options.threshold is None else self.options.threshold
        return f"({score} > {threshold!r})"


def _list(labels: tuple[str, ...]) -> str:
    return f"[{', '.join(quoted(label) for label in labels)}]"
