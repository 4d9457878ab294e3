"""Planted answers in words: the rules at the top of a topic file.

    answer 'refund' in {0} -> true
    answer {0} = '' -> fail
    answer {0} = {1} and question has 'same' -> 0.75
    answer -> false
    label 'red' in {0} -> 'red'
    label -> 'other'

The first rule whose conditions all hold gives the answer: `true` (0.9), `false` (0.1),
a number, or `fail` for a prompt that the model cannot answer. `{0}` is the first
document of the prompt. A prompt with fewer documents than a rule names does not match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRUE, FALSE = 0.9, 0.1

TEXT = r"'((?:[^']|'')*)'"
CONTAINS = re.compile(rf"{TEXT} in \{{(\d)\}}")
EQUALS = re.compile(rf"\{{(\d)\}} = {TEXT}")
SAME = re.compile(r"\{(\d)\} = \{(\d)\}")
QUESTION = re.compile(rf"question has {TEXT}")


class RuleError(Exception):
    """A rule that cannot be read, or a prompt for which there is no rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Conditions, all of which must hold, and what then is answered."""

    conditions: tuple[str, ...]
    result: str

    def matches(self, question: str, documents: tuple[str, ...]) -> bool:
        return all(_holds(each, question, documents) for each in self.conditions)


def read_rule(text: str) -> Rule:
    """A rule from the words after `answer` or `label`."""
    before, arrow, result = text.rpartition("->")
    if not arrow:
        raise RuleError(f"no -> in the rule {text!r}")
    conditions = tuple(part.strip() for part in before.split(" and ") if part.strip())
    for condition in conditions:
        if not any(form.fullmatch(condition) for form in (CONTAINS, EQUALS, SAME, QUESTION)):
            raise RuleError(f"cannot read the condition {condition!r}")
    return Rule(conditions, result.strip())


def _holds(condition: str, question: str, documents: tuple[str, ...]) -> bool:
    def document(number: str) -> str | None:
        return documents[int(number)] if int(number) < len(documents) else None

    if found := CONTAINS.fullmatch(condition):
        text = document(found[2])
        return text is not None and _unquoted(found[1]) in text
    if found := EQUALS.fullmatch(condition):
        return document(found[1]) == _unquoted(found[2])
    if found := SAME.fullmatch(condition):
        return document(found[1]) is not None and document(found[1]) == document(found[2])
    found = QUESTION.fullmatch(condition)
    return found is not None and _unquoted(found[1]) in question


def _unquoted(text: str) -> str:
    return text.replace("''", "'")


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a file."""

    answers: tuple[Rule, ...]
    labels: tuple[Rule, ...]

    def answer(self, question: str, documents: tuple[str, ...]) -> float | None:
        """P(TRUE), or None for a prompt that fails."""
        result = self._first(self.answers, question, documents)
        if result == "fail":
            return None
        return {"true": TRUE, "false": FALSE}.get(result) or float(result)

    def label(
        self, question: str, labels: tuple[str, ...], documents: tuple[str, ...]
    ) -> int | None:
        """The index of the label, or None for a prompt that fails."""
        result = self._first(self.labels, question, documents)
        return None if result == "fail" else labels.index(_unquoted(result[1:-1]))

    @staticmethod
    def _first(rules: tuple[Rule, ...], question: str, documents: tuple[str, ...]) -> str:
        for rule in rules:
            if rule.matches(question, documents):
                return rule.result
        raise RuleError(f"no rule for {question!r} about {documents!r}")
