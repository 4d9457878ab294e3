"""Six shapes of AI-SQL work as texts of exact token counts, from a seed.

Every word is one token of the checkpoint's tokenizer, so that a shape means the same
prompts for every engine; the wording of the questions is that of the default layout.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from covey.engine.local import LocalModel

_SPACE = "\u0120"  # how byte-level BPE spells the blank before a word


@dataclass(frozen=True, slots=True)
class Shape:
    """One operator's work.

    Attributes:
        name: as reports call it.
        template: the question; two documents are a join.
        anchors: texts that come first.
        partners: texts that each anchor meets, empty for a filter.
    """

    name: str
    template: str
    anchors: list[str]
    partners: list[str]

    @property
    def prompts(self) -> int:
        """Prompts that the shape stands for."""
        return len(self.anchors) * max(len(self.partners), 1)


class Words:
    """Draws texts of an exact number of tokens."""

    def __init__(self, tokenizer: str, seed: int) -> None:
        vocabulary = json.loads(tokenizer)["model"]["vocab"]
        self._words = sorted(
            word.removeprefix(_SPACE)
            for word in vocabulary
            if word.startswith(_SPACE) and word[1:].isascii() and word[1:].isalpha()
            if 3 <= len(word) <= 9
        )
        self._draw = random.Random(seed)

    def text(self, tokens: int) -> str:
        """So many words, a blank before each, the first included."""
        return "".join(" " + word for word in self._draw.choices(self._words, k=tokens))

    def lengths(self, count: int, mean: float, spread: float, least: int = 1) -> list[int]:
        """Lognormal lengths whose mean is `mean` tokens but for rounding."""
        drawn = np.array([self._draw.lognormvariate(0, spread) for _ in range(count)])
        found = np.maximum(np.rint(drawn * (mean / drawn.mean())), least)
        return [int(n) for n in found]

    def texts(self, lengths: list[int]) -> list[str]:
        """One text a length."""
        return [self.text(n) for n in lengths]

    def terms(self, count: int, mean: float) -> list[str]:
        """Short distinct names of which many begin alike, as in a medical dictionary."""
        heads = self.texts([1] * (count // 4))
        found: dict[str, None] = {}
        lengths = self.lengths(4 * count, mean - 1, 0.5, 0)
        for length in lengths:
            found.setdefault(self._draw.choice(heads) + self.text(length))
            if len(found) == count:
                break
        return list(found)

    def snapshots(self, trajectories: int, count: int, mean: float) -> list[str]:
        """Nested logs: each trajectory is seen several times while it grows."""
        cuts = [count // trajectories + (i < count % trajectories) for i in range(trajectories)]
        final = self.lengths(trajectories, mean * 1.45, 0.35, 500)
        found = []
        for parts, length in zip(cuts, final, strict=True):
            words = self.text(length).split()
            ends = [*sorted(self._draw.sample(range(length // 5, length), parts - 1)), length]
            found += ["".join(" " + word for word in words[:end]) for end in ends]
        return found


_JOIN = "Is it true that {0} mentions {1} in a way a careful reader would agree with?"
_FILTER = "Does the author of the text above say at least one positive thing about it? {0}"

_MAKERS: dict[str, Callable[[Words], Shape]] = {
    "filter-reviews": lambda w: Shape(
        "filter-reviews", _FILTER, w.texts(w.lengths(3000, 292, 0.7, 12)), []
    ),
    "join-reviews": lambda w: Shape(
        "join-reviews", _JOIN, w.texts(w.lengths(2500, 292, 0.7, 12)), w.texts([2] * 12)
    ),
    "join-reports": lambda w: Shape(
        "join-reports", _JOIN, w.texts(w.lengths(60, 4051, 0.3, 500)), w.terms(1127, 4.3)
    ),
    "join-passages": lambda w: Shape(
        "join-passages",
        _JOIN,
        w.texts(w.lengths(140, 220, 0.3, 20)),
        w.texts(w.lengths(140, 58, 0.4, 8)),
    ),
    "join-evidence": lambda w: Shape(
        "join-evidence",
        _JOIN,
        w.texts(w.lengths(100, 394, 0.4, 20)),
        w.texts(w.lengths(300, 9.5, 0.3, 3)),
    ),
    "filter-traces": lambda w: Shape("filter-traces", _FILTER, w.snapshots(40, 210, 8100), []),
}
NAMES = tuple(_MAKERS)


def make_shape(name: str, tokenizer: str, scale: float = 1.0, seed: int = 1) -> Shape:
    """A shape by its name, one of `NAMES`.

    Args:
        tokenizer: tokenizer.json, as text.
        scale: share of the anchors to keep.
    """
    shape = _MAKERS[name](Words(tokenizer, seed))
    return replace(shape, anchors=shape.anchors[: max(round(len(shape.anchors) * scale), 1)])


def make_shapes(checkpoint: Path, names: str = ",".join(NAMES), scale: float = 1.0) -> list[Shape]:
    """Shapes by their names, in words of a checkpoint's tokenizer."""
    tokenizer = LocalModel(checkpoint).encoder.json
    return [make_shape(name, tokenizer, scale) for name in names.split(",")]
