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
class Call:
    """One AI call.

    Attributes:
        kind: which function.
        name: the spelling, for example AI_FILTER.
        prompt: what is asked about what. A classification whose prompt is `Bare` has
            no task text; only its document counts.
        threshold: of AI.IF, None for the default of 0.5.
        labels: of AI.CLASSIFY.
    """

    kind: Kind
    name: str
    prompt: Prompt
    threshold: float | None = None
    labels: tuple[str, ...] = ()

    def covey(self) -> str:
        arguments = [self.prompt.covey()]
        if self.kind is Kind.CLASSIFY:
            arguments.append(_list(self.labels))
        if self.threshold is not None:
            arguments.append(f"{{'threshold': {self.threshold!r}}}")
        return f"{self.name}({', '.join(arguments)})"

    def template(self) -> str:
        """The text that the model sees, with {n} for documents."""
        if self.kind is Kind.CLASSIFY and isinstance(self.prompt, Bare):
            return ""
        return self.prompt.template()

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
        return f"({score} > {0.5 if self.threshold is None else self.threshold!r})"


def _list(labels: tuple[str, ...]) -> str:
    return f"[{', '.join(quoted(label) for label in labels)}]"
