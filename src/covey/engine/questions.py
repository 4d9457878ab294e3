"""The tokens of a question's prompts: what stands above, between and below its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from covey.arrays import Int32, Int64, offsets_of
from covey.engine.labels import LabelTree, build_tree
from covey.errors import InputError
from covey.estimate.figures import Range
from covey.estimate.profile import QuestionLengths
from covey.prompts.forest import build_trie
from covey.prompts.layout import Layout, PromptPart, Role
from covey.prompts.question import CONTENT_FREE, Method, Question, QuestionKind
from covey.prompts.tokens import DocumentTokens, Encoder, Tokens, concatenate, encode_sound

_PROBES = ("a", "b")
_END = "\n"

# What a further request costs besides its tokens, in tokens: its share of packing, of the
# attention over a prompt that is read again, and of waiting for the forward batch before.
_REQUEST = 8


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """A question's prompts: preamble + examples + anchor + instruction + suffix + probe.

    Attributes:
        anchor: index of the anchor, None for a question without documents.
        preamble: (p,) int32, equal for all questions that have documents.
        examples: (e,) int32, what follows the preamble in all prompts; empty without any.
        instruction: (i,) int32, what follows the anchor before anything varies.
        suffix: the pieces behind it: literal tokens, or the index of a partner.
        probes: what a row is asked behind its suffix, one answer each: the nodes of
            `tree`, or a question about each label. None for one answer at the suffix's end.
        tree: the labels of a classification.
        stepwise: whether only some probes of a row are asked, one after the other.
    """

    anchor: int | None
    preamble: Int32
    examples: Int32
    instruction: Int32
    suffix: tuple[Int32 | int, ...]
    probes: Tokens | None = None
    tree: LabelTree | None = None
    stepwise: bool = False

    @property
    def partners(self) -> list[int]:
        """Indices of the documents after the anchor, in prompt order."""
        return [piece for piece in self.suffix if isinstance(piece, int)]

    @property
    def fixed(self) -> int:
        """Tokens of the longest prompt that are no document's."""
        longest = 0 if self.probes is None else int(self.probes.lengths.max())
        fixed = len(self.preamble) + len(self.examples) + len(self.instruction)
        return fixed + self._literal + longest

    @property
    def _literal(self) -> int:
        return sum(len(piece) for piece in self.suffix if not isinstance(piece, int))

    def lengths(self) -> QuestionLengths:
        """Its tokens as estimates count them, without a prior's."""
        prompts, asked = 1, self._literal
        if self.tree is not None:  # what is read behind the cue is no prompt more
            asked += len(self.tree.paths[0])
        elif self.probes is not None:
            prompts = len(self.probes)
            asked = prompts * asked + int(self.probes.lengths.sum())
        if self.stepwise or self.probes is None:
            suffix = asked
        else:
            suffix = self._literal + build_trie(self.probes).size
        preamble = len(self.preamble) + len(self.examples)
        lengths = QuestionLengths(preamble, len(self.instruction), suffix, prompts, asked)
        if self.tree is None or not self.stepwise:
            return lengths
        sizes = np.array([self._literal + len(path) for path in self.tree.paths], np.float64)
        sizes[0] = 0.0  # the first step is none of the later ones
        steps, tokens = self.tree.ways(sizes)
        # The likely ones are those for labels that are all as likely.
        return replace(
            lengths,
            steps=Range(float(steps.min()), float(steps.mean()), self.tree.nodes - 1.0),
            step_tokens=Range(float(tokens.min()), float(tokens.mean()), float(sizes.sum())),
        )


class QuestionEncoder:
    """Tokenises questions, each literal part by itself.

    Args:
        layout: how prompts are laid out.
        encoder: the model's tokenizer.
        bos: the token every prompt begins with, or None.

    Attributes:
        preamble: (p,) int32, the tokens before every anchor.
    """

    def __init__(self, layout: Layout, encoder: Encoder, bos: int | None) -> None:
        self._layout = layout
        self._encoder = encoder
        self._bos = [] if bos is None else [bos]
        probes = [Question(QuestionKind.JUDGE, text, 1) for text in _PROBES]
        parts = layout.parts(probes[0])
        before = [part.text for part in parts if part.role is Role.PREAMBLE]
        self.preamble = self._ids(self._bos, *before)
        tails = [self._ids([], layout.parts(probe)[-1].text) for probe in probes]
        # All judgements of one document go on alike behind it: part of what is kept of it.
        self._judged = tails[0][: _common(*tails)]

    def encode(self, question: Question) -> QuestionTokens:
        """The tokens of a question's prompts.

        Raises:
            InputError: its labels cannot be told apart, or by one letter each.
        """
        parts = self._layout.parts(question)
        tree = self._tree(question) if question.kind is QuestionKind.CLASSIFY else None
        probes = self._probes(question, tree)
        stepwise = tree is not None and self._is_stepwise(question, tree)
        if question.arity == 0:
            tail = self._ids([], *(part.text for part in parts))
            preamble, none = self._ids(self._bos), self._ids([])
            return QuestionTokens(None, preamble, none, none, (tail,), probes, tree, stepwise)
        first = next(i for i, part in enumerate(parts) if part.role is Role.DOCUMENT)
        examples = self._ids([], *(p.text for p in parts[:first] if p.role is Role.EXAMPLES))
        instruction, suffix = self._behind(question, parts[first + 1 :], stepwise)
        return QuestionTokens(
            question.anchor, self.preamble, examples, instruction, suffix, probes, tree, stepwise
        )

    def _behind(
        self, question: Question, parts: Sequence[PromptPart], stepwise: bool
    ) -> tuple[Int32, tuple[Int32 | int, ...]]:
        """Instruction and suffix: what stands behind the anchor."""
        instruction: list[int] = []
        suffix: list[Int32 | int] = []
        for part in parts:
            if part.document is not None:
                suffix.append(part.document)
            elif question.arity > 1 and not suffix:
                instruction += self._encoder.ids(part.text)
            else:
                suffix.append(self._ids([], part.text))
        if question.arity == 1:
            tail = np.concatenate([piece for piece in suffix if not isinstance(piece, int)])
            # Between steps the prompt stays, but for its last token, which is read again.
            shared = len(tail) if stepwise else _common(tail, self._judged)
            shared = min(shared, len(tail) - 1)
            return tail[:shared], (tail[shared:],)
        return self._ids(instruction), tuple(suffix)

    def _tree(self, question: Question) -> LabelTree:
        runs = [self._encoder.ids(text) for text in self._layout.answers(question)]
        names = [label.text for label in question.labels]
        tree = build_tree(runs, self._encoder.ids(_END)[0], names)
        if question.method is Method.LETTERS and tree.nodes > 1:
            raise InputError(
                "method => 'letters' needs a tokenizer in which letters differ in one token, which"
                " this model's has not. Use 'trie' or 'stepwise'."
            )
        return tree

    def _probes(self, question: Question, tree: LabelTree | None) -> Tokens | None:
        if question.kind is QuestionKind.JUDGE:
            return None
        if tree is None:
            return column([self._ids([], text) for text in self._layout.endings(question)])
        return column(tree.paths)

    def _is_stepwise(self, question: Question, tree: LabelTree) -> bool:
        """Whether steps cost fewer tokens than all nodes at once, each label being as likely.

        A step asks again for what a forward batch does not keep: the last token of the prompt, and
        where there are partners the whole suffix.
        """
        if question.full or question.method is Method.LETTERS or question.method is Method.TRIE:
            return False
        if question.method is Method.STEPWISE:
            return True
        again = 1
        if question.arity != 1:
            again = len(self._encoder.ids(self._layout.parts(question)[-1].text))
        sizes = np.array([len(path) for path in tree.paths[1:]], dtype=np.int64)
        steps = float(tree.share()[1:] @ (sizes + again + _REQUEST))
        return len(tree.paths[0]) + steps < tree.path_tokens

    def _ids(self, ids: list[int], *texts: str) -> Int32:
        found = list(ids)
        for text in texts:
            found += self._encoder.ids(text)
        return np.array(found, dtype=np.int32)


class TokenMeasure:
    """Measures with the model's tokenizer; see `covey.estimate.profile.Measure`.

    Args:
        layout, encoder, bos: see `QuestionEncoder`.
    """

    exact = True

    def __init__(self, layout: Layout, encoder: Encoder, bos: int | None) -> None:
        self._encoder = encoder
        self._questions = QuestionEncoder(layout, encoder, bos)

    def question(self, question: Question) -> QuestionLengths:
        lengths = self._questions.encode(question).lengths()
        if question.content_free is None:
            return lengths
        return replace(lengths, prior=tuple(self.documents(CONTENT_FREE).tolist()))

    def documents(self, texts: Sequence[str]) -> Int64:
        # A lone surrogate has no encoding; the run will say so of its row.
        sound = [text.encode(errors="replace").decode() for text in texts]
        return np.diff(encode_sound(self._encoder, sound)[1])


def _common(left: Int32, right: Int32) -> int:
    """Length of the common beginning of two runs."""
    size = min(len(left), len(right))
    differs = left[:size] != right[:size]
    return int(differs.argmax()) if differs.any() else size


def literal(ids: Int32) -> Tokens:
    """A column of one run."""
    return Tokens(ids, np.array([0, len(ids)], dtype=np.int64))


def column(runs: Sequence[Int32]) -> Tokens:
    """A column of some runs."""
    offsets = offsets_of(np.array([len(run) for run in runs], dtype=np.int64))
    return Tokens(np.concatenate(runs).astype(np.int32), offsets)


def prefix_tokens(asked: QuestionTokens, anchors: Int64, documents: DocumentTokens) -> Tokens:
    """The shared prefixes without the preamble; (n,) ids, which must be ensured, give n runs."""
    rows = np.arange(len(anchors), dtype=np.int64)
    taken = documents.take(anchors)
    if not len(asked.instruction) and not len(asked.examples):
        return taken
    same = np.zeros_like(rows)
    before, behind = literal(asked.examples), literal(asked.instruction)
    return concatenate([(before, same), (taken, rows), (behind, same)])


def suffix_tokens(asked: QuestionTokens, partners: Int64, documents: DocumentTokens) -> Tokens:
    """The suffixes of some tuples of partners.

    Args:
        partners: (n, partners) ids, in the order of `asked.partners`, and where there are
            probes a last column, the probe; n is 1 where there are neither.
    """
    rows = np.arange(len(partners), dtype=np.int64)
    parts: list[tuple[Tokens, Int64]] = []
    place = 0
    for piece in asked.suffix:
        if isinstance(piece, int):
            parts.append((documents.take(partners[:, place]), rows))
            place += 1
        else:
            parts.append((literal(piece), np.zeros_like(rows)))
    if asked.probes is not None:
        parts.append((asked.probes, partners[:, place]))
    return concatenate(parts)
