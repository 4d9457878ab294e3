"""What is known of a model before it is loaded: lengths of prompts, unit costs and rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from covey.arrays import Int64
from covey.estimate.figures import ZERO, Range
from covey.estimate.rates import Rates, assumed_rates
from covey.hardware.devices import Device
from covey.models.spec import ModelCosts
from covey.prompts.layout import Layout, Role
from covey.prompts.question import CONTENT_FREE, Question, QuestionKind

# Mean UTF-8 bytes of a token in English prose under the tokenizers of the known models.
BYTES_A_TOKEN = 4.4


@dataclass(frozen=True, slots=True)
class QuestionLengths:
    """Tokens of a question's prompts that are no document's.

    Attributes:
        preamble: before the anchor, equal for all prompts of a question.
        instruction: behind the anchor, before anything varies.
        suffix: literal tokens behind that, without the partners, and what is read of the
            labels of one row.
        prompts: prompts that one row is counted as: one for each label that is asked by itself.
        asked: literal tokens behind the instruction of all these prompts, computed once or not.
        steps: of a row behind its first, where a classification goes step by step; each
            computes the row's partners again. The fewest lead to the nearest label, the most
            read all nodes.
        step_tokens: what these steps compute besides.
        prior: of each document without content that is asked about before the others.
    """

    preamble: int
    instruction: int
    suffix: int
    prompts: int
    asked: int
    steps: Range = ZERO
    step_tokens: Range = ZERO
    prior: tuple[int, ...] = ()


class Measure(Protocol):
    """Tells how long prompts are in the model's tokens."""

    @property
    def exact(self) -> bool:
        """Whether it has the model's tokenizer, and does not go by bytes."""
        ...

    def question(self, question: Question) -> QuestionLengths:
        """The literal tokens of a question's prompts."""
        ...

    def documents(self, texts: Sequence[str]) -> Int64:
        """(n,) tokens of each text; a text without an encoding has 0."""
        ...


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """All that an estimate needs of a model.

    Attributes:
        measure: of prompts.
        costs: of a token; None for a model that does no work of its own.
        device: where it will run; None where its facts are not known.
        rates: measured there; None where nothing was measured yet.
        capacity: tokens whose keys and values it can hold at once, about.
        shares: whether it computes what documents begin alike with once.
        fingerprint: see `Engine.fingerprint`; None where it is not known before loading.
        note: what a reader of estimates must know of it.
    """

    measure: Measure
    costs: ModelCosts | None = None
    device: Device | None = None
    rates: Rates | None = None
    capacity: int | None = None
    shares: bool = True
    fingerprint: str | None = None
    note: str | None = None

    @property
    def budget(self) -> float:
        """Fresh tokens of a pass; without costs everything is taken to run in one."""
        return math.inf if self.costs is None else float(self.costs.budget)

    @property
    def expected_rates(self) -> Rates | None:
        """The measured rates, else those of the datasheet; None where that is not known."""
        if self.rates is not None or self.costs is None or self.device is None:
            return self.rates
        return assumed_rates(self.costs, self.device)


class ByteMeasure:
    """Measures by bytes, for a model whose tokenizer is not on this machine yet; see `Measure`.

    Args:
        layout: how prompts are laid out.
    """

    exact = False

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def question(self, question: Question) -> QuestionLengths:
        parts = self._layout.parts(question)

        def tokens(role: Role) -> int:
            return _tokens(part.text for part in parts if part.role is role)

        # What labels have in common is known to a tokenizer only.
        endings = self._layout.endings(question) if question.kind is QuestionKind.EACH else ()
        prompts, probed = max(len(endings), 1), _tokens(endings)
        literal = tokens(Role.HEADING) + tokens(Role.TAIL)
        prior = () if question.content_free is None else self.documents(CONTENT_FREE).tolist()
        return QuestionLengths(
            preamble=tokens(Role.PREAMBLE) + tokens(Role.EXAMPLES),
            instruction=tokens(Role.INSTRUCTION),
            suffix=literal + probed,
            prompts=prompts,
            asked=prompts * literal + probed,
            prior=tuple(prior),
        )

    def documents(self, texts: Sequence[str]) -> Int64:
        return np.array([_tokens([text]) for text in texts], np.int64)


def _tokens(texts: Iterable[str]) -> int:
    return round(sum(len(text.encode(errors="replace")) for text in texts) / BYTES_A_TOKEN)
