"""Prompt layouts as data: the literal pieces around the documents of a question.

A layout turns a `Question` into parts. Each part is tokenised by itself and the tokens
are concatenated, so equal parts are equal tokens wherever they stand, and a prompt
forest can be built from parts alone. The first document always comes before the
question: its keys and values serve every question asked about it.

Shapes of `raw-v1`, `+` between parts:

    no document     task question + cue
    one document    preamble + document + task question + cue
    several         preamble + anchor + instruction (note, task question)
                    + (heading + document) for each partner + cue
    classify one    preamble + document + task question, categories and cue
    classify more   preamble + anchor + note + (heading + document) for each partner
                    + task question, categories and cue
    each label      as to classify, with a task about one category instead of the list;
                    the category itself and the cue are an ending, one a label

Examples stand between preamble and anchor, one part for all of them, each a document, the
cue and the answer; the preamble stands before the anchor again:

    preamble + example, cue, answer, separator, preamble + anchor + …
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from covey.prompts.question import LETTERS, Label, Method, Question, QuestionKind, parse_template


class Role(Enum):
    """What a part is for. Parts up to and including INSTRUCTION depend on the anchor alone."""

    PREAMBLE = "preamble"
    EXAMPLES = "examples"
    DOCUMENT = "document"
    INSTRUCTION = "instruction"
    HEADING = "heading"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One run of text in a prompt.

    Attributes:
        text: the literal text, "" for a document.
        document: index among the question's documents, None for literal text.
    """

    role: Role
    text: str = ""
    document: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed wording of prompts. `{i}` in `note` and `heading` is a document's mark.

    Attributes:
        name: part of every answer's identity.
        preamble: before the first document.
        separator: between blocks.
        note: says which document stands above, where there are several.
        heading: before each further document.
        judge: before the question of a judgement.
        judge_alone: the task where the document is itself the question.
        classify: before the question of a classification.
        classify_alone: the task of a classification that has no question.
        each: the task that is asked label by label.
        categories: before the labels.
        category: before the one label of a prompt.
        bullet: before each label.
        letter: behind the letter that stands for a label.
        label_prefix: before a label that stands as the answer.
        above: stands for a placeholder in the middle of a one-document question.
        cue: the end of every prompt; the answer is the token behind it.
    """

    name: str
    preamble: str
    separator: str
    note: str
    heading: str
    judge: str
    judge_alone: str
    classify: str
    classify_alone: str
    each: str
    categories: str
    category: str
    bullet: str
    letter: str
    label_prefix: str
    above: str
    cue: str

    def parts(self, question: Question) -> tuple[PromptPart, ...]:
        """The parts of a question's prompts, first to last."""
        if question.kind is QuestionKind.CLASSIFY:
            tail = self._separated(question, self._classification(question))
            return (*self._documents(question, None), PromptPart(Role.TAIL, tail + self.cue))
        if question.kind is QuestionKind.EACH:
            tail = self._separated(question, self._each(question))
            return (*self._documents(question, None), PromptPart(Role.TAIL, tail))
        task = self._separated(question, self._judgement(question))
        if question.arity <= 1:
            return (*self._documents(question, None), PromptPart(Role.TAIL, task + self.cue))
        return (*self._documents(question, task), PromptPart(Role.TAIL, self.cue))

    def endings(self, question: Question) -> tuple[str, ...]:
        """What stands behind the parts of a question that is asked label by label."""
        return tuple(self.bullet + _described(label) + self.cue for label in question.labels)

    def answers(self, question: Question) -> tuple[str, ...]:
        """What the model would write to choose each label."""
        if question.method is Method.LETTERS:
            return tuple(self.label_prefix + letter for letter in LETTERS[: len(question.labels)])
        return tuple(self.label_prefix + label.text for label in question.labels)

    def _separated(self, question: Question, task: str) -> str:
        """The task as a block of its own; a prompt without documents begins with it."""
        return self.separator + task if question.arity else task

    def _documents(self, question: Question, task: str | None) -> list[PromptPart]:
        """Preamble and documents, anchor first; `task` stands before the partners."""
        if question.arity == 0:
            return []
        anchor = question.anchor
        parts = [PromptPart(Role.PREAMBLE, self.preamble)]
        if question.examples:
            parts.append(PromptPart(Role.EXAMPLES, self._examples(question)))
        parts.append(PromptPart(Role.DOCUMENT, document=anchor))
        if question.arity > 1:
            note = self.separator + self.note.replace("{i}", _mark(anchor))
            parts.append(PromptPart(Role.INSTRUCTION, note + (task or "")))
        for index in range(question.arity):
            if index != anchor:
                heading = self.separator + self.heading.replace("{i}", _mark(index))
                parts.append(PromptPart(Role.HEADING, heading))
                parts.append(PromptPart(Role.DOCUMENT, document=index))
        return parts

    def _examples(self, question: Question) -> str:
        """All examples, the preamble before the first left out and one behind the last."""
        text = ""
        answers: dict[str, str] = {}
        if question.kind is QuestionKind.CLASSIFY:
            texts = (label.text for label in question.labels)
            answers.update(zip(texts, self.answers(question), strict=True))
        for example in question.examples:
            text += example.documents[question.anchor]
            for index, document in enumerate(example.documents):
                if index != question.anchor:
                    text += self.separator + self.heading.replace("{i}", _mark(index)) + document
            if example.category is not None:
                text += self.separator + self.category + self.bullet + example.category
            answer = answers.get(example.answer, self.label_prefix + example.answer)
            text += self.cue + answer + self.separator + self.preamble
        return text

    def _judgement(self, question: Question) -> str:
        asked = self._question_text(question)
        return self.judge + asked if asked else self.judge_alone

    def _classification(self, question: Question) -> str:
        asked = self._question_text(question)
        task = self.classify + asked if asked else self.classify_alone
        lettered = question.method is Method.LETTERS
        lines = (
            self.bullet + (LETTERS[i] + self.letter if lettered else "") + _described(label)
            for i, label in enumerate(question.labels)
        )
        return task + self.separator + self.categories + "".join(lines)

    def _each(self, question: Question) -> str:
        asked = self._question_text(question)
        task = self.judge + (f"{asked} {self.each}" if asked else self.each)
        return task + self.separator + self.category

    def _question_text(self, question: Question) -> str:
        """The question as the model reads it, "" where the template asks nothing."""
        pieces = parse_template(question.template)
        if question.arity == 1:
            return _without_document(pieces, self.above)
        return "".join(_mark(p) if isinstance(p, int) else p for p in pieces).strip()


def _described(label: Label) -> str:
    return label.text + (f": {label.description}" if label.description else "")


def _mark(index: int) -> str:
    return f"{{{index}}}"


def _without_document(pieces: list[str | int], above: str) -> str:
    """The question about the one document, which stands before it.

    A placeholder that stands apart — first, last behind punctuation, or on a line of its
    own — is taken out, and what stood before it closes up with what stood behind. Inside
    a sentence it is named instead: "Is {0} a complaint?" reads "Is the document above a
    complaint?".
    """
    text = ""
    for i, piece in enumerate(pieces):
        if isinstance(piece, str):
            text = _close_up(text, piece) if _stands_apart(pieces, i - 1) else text + piece
        elif not _stands_apart(pieces, i):
            text += above if text.strip() else above[:1].upper() + above[1:]
    return text.strip().removesuffix(":").rstrip()


def _stands_apart(pieces: list[str | int], index: int) -> bool:
    """Whether the placeholder at an index is no part of a sentence."""
    if index < 0 or isinstance(pieces[index], str):
        return False
    before = _neighbour(pieces, index - 1)
    behind = _neighbour(pieces, index + 1)
    ends_before = not before.strip() or re.search(r"[.?!:;]\s*$|\n\s*$", before) is not None
    # "{0} is a complaint" goes on with a word in lower case: the document is its subject.
    goes_on = re.match(r"[ \t]*[a-z,]|['\u2019]", behind) is not None
    return ends_before and not goes_on


def _neighbour(pieces: list[str | int], index: int) -> str:
    piece = pieces[index] if 0 <= index < len(pieces) else ""
    return piece if isinstance(piece, str) else "x"


def _close_up(before: str, behind: str) -> str:
    """Join the texts around a removed placeholder by one separator of the stronger kind."""
    head, tail = before.rstrip(), behind.lstrip()
    gap = before[len(head) :] + behind[: len(behind) - len(tail)]
    if not head or not tail:
        return head + tail
    lines = gap.count("\n")
    return head + ("\n" * min(lines, 2) if lines else " ") + tail


RAW_V1 = Layout(
    name="raw-v1",
    preamble="DOCUMENT:\n",
    separator="\n\n",
    note="(The document above is DOCUMENT {i}.)",
    heading="DOCUMENT {i}:\n",
    judge="Evaluate TRUE or FALSE for the following question: ",
    judge_alone="Evaluate TRUE or FALSE for the question or statement in the document above.",
    classify="Answer with exactly one of the categories below for the following question: ",
    classify_alone="Answer with exactly one of the categories below.",
    each="Does the category below apply?",
    categories="Categories:",
    category="Category:",
    bullet="\n- ",
    letter=". ",
    label_prefix=" ",
    above="the document above",
    cue="\nANSWER:",
)

LAYOUTS = {RAW_V1.name: RAW_V1}
DEFAULT_LAYOUT = RAW_V1.name
