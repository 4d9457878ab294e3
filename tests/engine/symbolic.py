"""A runner that knows what every row should see: it computes prompts, not numbers.

A slot remembers the row that was written to it. A row's prompt is put together from the
slots and rows that the batch lets it see; any hole, any doubled position and any slot that
was overwritten too early shows as a wrong prompt. The margin of a prompt is a number made
of its tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.arrays import Float64, Int32, Int64
from covey.engine.labels import Wanted
from covey.kernels.base import ForwardBatch
from covey.prompts.layout import Layout

Prompt = tuple[int, ...]

# What follows a document, "ab", may be how a longer one goes on: prefixes contain each other.
LAYOUT = Layout(
    name="short",
    preamble="P:",
    separator="a",
    note="({i})",
    heading="#{i}",
    judge="b",
    judge_alone="!",
    classify="c",
    classify_alone="C",
    each="e",
    categories=":",
    category=";",
    bullet="-",
    letter=".",
    label_prefix=" ",
    above="it",
    cue="=",
)


class CharEncoder:
    """A token is a character."""

    def ids(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        for text in texts:
            text.encode()
        ids = [i for text in texts for i in self.ids(text)]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return np.array(ids, dtype=np.int32), offsets


def margin(prompt: Sequence[int]) -> float:
    """A number that tells prompts apart."""
    return float(zlib.crc32(np.array(prompt, dtype=np.int32).tobytes()))


def logit(prompt: Sequence[int], token: int) -> float:
    """A number for a token behind a prompt, in no order."""
    return margin([*prompt, token]) % 997 / 100


@dataclass(frozen=True, slots=True)
class Found:
    """See `covey.engine.model_runner.Launched`."""

    margins: Float64

    def result(self) -> tuple[Float64, float]:
        return self.margins, 0.0


class SymbolicRunner:
    """Runs batches on prompts.

    Args:
        slots: of the KV cache.
        fail_at: raises on the batch of this number.

    Attributes:
        batches: all that ran.
        computed: every prefix in the order it was computed, repeats included.
        answered: the prompts that each batch answers.
    """

    def __init__(self, slots: int, fail_at: int | None = None) -> None:
        self.batches: list[ForwardBatch] = []
        self.computed: list[Prompt] = []
        self.answered: list[list[Prompt]] = []
        self._fail_at = fail_at
        self._slots: list[tuple[int, int] | None] = [None] * slots
        self._prompts: dict[tuple[int, int], Prompt] = {}

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Found:
        number = len(self.batches)
        if number == self._fail_at:
            raise ZeroDivisionError("the kernel fails")
        self.batches.append(batch)
        stored = np.flatnonzero(batch.slot_mapping >= 0)
        slots = batch.slot_mapping[stored]
        assert len(np.unique(slots)) == len(slots), "a slot written twice"
        # Keys and values are stored before any row attends.
        for row, slot in zip(stored.tolist(), slots.tolist(), strict=True):
            self._slots[slot] = (number, row)
        seen = [self._seen(batch, row) for row in range(len(batch))]
        # Rows see rows that come later in the batch only through the KV cache: follow depths.
        for row in np.argsort(batch.positions, kind="stable").tolist():
            self._prompts[number, row] = self._prompt(batch, number, row, seen[row])
            self.computed.append(self._prompts[number, row])
        self.answered.append([self._prompts[number, row] for row in batch.logits_indices.tolist()])
        found = [margin(prompt) for prompt in self.answered[-1]]
        if wanted is not None:
            tokens = wanted.tokens[wanted.columns].tolist()
            prompts = [self.answered[-1][i] for i in wanted.answers.tolist()]
            found += [logit(*each) for each in zip(prompts, tokens, strict=True)]
        return Found(np.array(found))

    def _seen(self, batch: ForwardBatch, row: int) -> list[int]:
        """The KV cache slots a row sees."""
        over = (batch.prefix_rows[:, 0] <= row) & (row < batch.prefix_rows[:, 1])
        return [slot for span in batch.prefix_slots[over].tolist() for slot in range(*span)]

    def _prompt(self, batch: ForwardBatch, number: int, row: int, slots: list[int]) -> Prompt:
        depth = int(batch.positions[row])
        above: list[Prompt | None] = [None] * depth
        keys = [(number, k) for k in range(row) if row < batch.subtree_ends[k]]
        for slot in slots:
            held = self._slots[slot]
            assert held is not None, f"row {row} reads slot {slot}, which holds nothing"
            keys.append(held)
        for key in keys:
            prefix = self._prompts[key]
            assert above[len(prefix) - 1] is None, f"row {row} sees two tokens at one depth"
            above[len(prefix) - 1] = prefix
        whole = above[-1] if above else ()
        assert whole is not None, f"row {row} does not see the token before it"
        for place, prefix in enumerate(above):
            assert prefix == whole[: place + 1], f"row {row} sees another prompt's token"
        return (*whole, int(batch.tokens[row]))
