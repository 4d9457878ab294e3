"""Token ids in columns: one flat array and offsets, each document tokenised once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from covey.arrays import Int32, Int64, distinct, offsets_of, ranges
from covey.errors import CoveyError, RunError
from covey.prompts.column import SPILL_BYTES, Column
from covey.prompts.documents import DocumentStore

_BLOCK = 1 << 21  # tokens copied at a time by `concatenate`: bounds its index arrays
_BATCH = 4096  # documents encoded at a time: bounds the encoder's own copies


class Encoder(Protocol):
    """What tokenising needs of a model's tokenizer."""

    def ids(self, text: str) -> list[int]:
        """Token ids of one plain text."""
        ...

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        """Flat int32 ids and (n + 1,) int64 offsets; UnicodeError on a lone surrogate."""
        ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """Runs of token ids.

    Attributes:
        flat: (total,) int32.
        offsets: (n + 1,) int64; run i is flat[offsets[i]:offsets[i + 1]].
    """

    flat: Int32
    offsets: Int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        """(n,) int64."""
        return np.diff(self.offsets)

    def run(self, index: int) -> Int32:
        """The ids of one run, a view."""
        return self.flat[self.offsets[index] : self.offsets[index + 1]]


def gather(flat: Int32, starts: Int64, lengths: Int64) -> Tokens:
    """Copy runs of `flat`, in the order given, repeats allowed, without a loop."""
    return Tokens(flat[ranges(starts, lengths)], offsets_of(lengths))


def concatenate(parts: Sequence[tuple[Tokens, Int64]]) -> Tokens:
    """Prompts from parts: row i is run rows[i] of every part in turn.

    Args:
        parts: pairs of a column and (n,) int64 run numbers in it, n the same for all.
            A literal is a column of one run with zeros as its run numbers.

    Returns:
        A column of n runs, newly allocated; index arrays stay small beside it.
    """
    count = len(parts[0][1])
    lengths = np.zeros(count, dtype=np.int64)
    for column, rows in parts:
        lengths += column.lengths[rows]
    offsets = offsets_of(lengths)
    flat = np.empty(offsets[-1], dtype=np.int32)
    first = 0
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), count)
        at = offsets[first:last].copy()
        for column, rows in parts:
            chosen = rows[first:last]
            size = column.lengths[chosen]
            flat[ranges(at, size)] = column.flat[ranges(column.offsets[chosen], size)]
            at += size
        first = last
    return Tokens(flat, offsets)


class DocumentTokens:
    """The tokens of a store's documents, encoded when first asked for.

    Any thread may call any method. One at a time encodes, whichever holds `_encoding`, and
    nobody else appends to the column. The table of what is encoded, and the errors, belong to
    whoever holds `_lock`: a batch is entered under it when all its tokens lie in the column,
    and read under it, so that nobody waits for the encoder, or sees half of what it has done.

    """

    def __init__(
        self, store: DocumentStore, encoder: Encoder, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._encoding = threading.Lock()
        self._column = Column(np.int32, spill_bytes)
        self._lock = threading.Lock()
        self._starts = np.empty(0, dtype=np.int64)
        self._lengths = np.empty(0, dtype=np.int64)
        self._errors: dict[int, str] = {}
        self._stopped = threading.Event()

    @property
    def flat(self) -> Int32:
        """All ids so far; later documents are not in it."""
        return self._column.flat

    @property
    def errors(self) -> dict[int, str]:
        """Document id -> why it cannot be tokenised, of those that were asked for so far."""
        with self._lock:
            return dict(self._errors)

    def ensure(self, ids: Int64) -> None:
        """Tokenise those documents among `ids` that are not yet."""
        if not len(self._missing(ids)):
            return
        with self._encoding:
            # Another thread may have encoded some meanwhile.
            missing = self._missing(ids)
            for start in range(0, len(missing), _BATCH):
                if self._stopped.is_set():
                    return
                self._encode(missing[start : start + _BATCH])

    def stop(self) -> None:
        """Encode no more: an `ensure` under way in another thread soon returns."""
        self._stopped.set()

    def lengths(self, ids: Int64) -> Int64:
        """Tokens of each document, 0 for one that has none; RunError where one is not ensured."""
        return self._entries(ids)[1]

    def take(self, ids: Int64) -> Tokens:
        """The documents' tokens, in the order given.

        Raises:
            RunError: no more are encoded, and one of them was not.
        """
        self.ensure(ids)
        starts, lengths = self._entries(ids)
        return gather(self._column.flat, starts, lengths)

    def _missing(self, ids: Int64) -> Int64:
        """Those among some documents that are not encoded, distinct."""
        with self._lock:
            lacking = len(self._store) - len(self._starts)
            if lacking > 0:
                more = max(lacking, len(self._starts))
                self._starts = np.concatenate([self._starts, np.zeros(more, dtype=np.int64)])
                self._lengths = np.concatenate([self._lengths, np.full(more, -1, dtype=np.int64)])
            return distinct(ids[self._lengths[ids] < 0])

    def _entries(self, ids: Int64) -> tuple[Int64, Int64]:
        """Where documents begin in the column, and their tokens."""
        with self._lock:
            starts, lengths = self._starts[ids], self._lengths[ids]
        if lengths.min(initial=0) < 0:
            raise RunError("Documents were read before they were tokenised, or behind the end.")
        return starts, lengths

    def _encode(self, ids: Int64) -> None:
        flat, offsets, errors = encode_sound(self._encoder, self._store.texts(ids))
        starts = self._column.append(flat) + offsets[:-1]
        with self._lock:
            self._errors.update({int(ids[place]): reason for place, reason in errors.items()})
            self._starts[ids] = starts
            self._lengths[ids] = np.diff(offsets)


# What a text is not at fault for.
_NOT_OF_A_TEXT = (MemoryError, OSError, ImportError, CoveyError)
_INNOCENT = "a"


def encode_sound(encoder: Encoder, texts: Sequence[str]) -> tuple[Int32, Int64, dict[int, str]]:
    """Encode what has an encoding; a text that the tokenizer fails on has no tokens.

    A tokenizer that cannot encode a letter either is broken: what it raises is then let through.

    Returns:
        as `Encoder.encode`, and for each text that failed, by its place, why.
    """
    if not len(texts):
        return np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64), {}
    try:
        return (*encoder.encode(texts), {})
    except BaseException as error:
        if not _is_of_a_text(error):
            raise
        if len(texts) == 1:
            encoder.encode([_INNOCENT])
            return np.empty(0, np.int32), np.zeros(2, np.int64), {0: _reason(error)}
    # By halves, so that few are encoded alone.
    half = len(texts) // 2
    flat, offsets, errors = encode_sound(encoder, texts[:half])
    other, behind, more = encode_sound(encoder, texts[half:])
    errors.update({half + place: reason for place, reason in more.items()})
    ends = np.concatenate([offsets, offsets[-1] + behind[1:]])
    return np.concatenate([flat, other]), ends, errors


def _is_of_a_text(error: BaseException) -> bool:
    """Whether a text may be at fault. A panic of the tokenizers' Rust code is no Exception."""
    panic = type(error).__name__ == "PanicException"
    return panic or (isinstance(error, Exception) and not isinstance(error, _NOT_OF_A_TEXT))


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeError):
        return f"the text is not valid Unicode: {error}"
    # Its message may quote the text, which reports do not show.
    return f"the tokenizer failed on the text ({type(error).__name__})"
