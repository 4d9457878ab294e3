"""Token ids in columns: one flat array and offsets, each document tokenised once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from covey.errors import CoveyError
from covey.prompts.column import SPILL_BYTES, TokenColumn
from covey.prompts.documents import DocumentStore

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

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
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    source = np.arange(offsets[-1], dtype=np.int64)
    source += np.repeat(starts - offsets[:-1], lengths)
    return Tokens(flat[source], offsets)


class DocumentTokens:
    """The tokens of a store's documents, encoded when first asked for.

    One thread may call `ensure` while others read documents that were ensured before.

    Args:
        spill_bytes: see `TokenColumn`.

    Attributes:
        errors: document id -> why it cannot be tokenised.
    """

    def __init__(
        self, store: DocumentStore, encoder: Encoder, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._column = TokenColumn(spill_bytes)
        self._starts = np.empty(0, dtype=np.int64)
        self._lengths = np.empty(0, dtype=np.int64)
        self._stopped = False
        self.errors: dict[int, str] = {}

    @property
    def flat(self) -> Int32:
        """All ids so far; later documents are not in it."""
        return self._column.flat

    def ensure(self, ids: Int64) -> None:
        """Tokenise those documents among `ids` that are not yet."""
        self._grow(len(self._store))
        wanted = np.unique(ids)
        missing = wanted[self._lengths[wanted] < 0]
        for start in range(0, len(missing), _BATCH):
            if self._stopped:
                return
            self._encode(missing[start : start + _BATCH])

    def stop(self) -> None:
        """Encode no more: an `ensure` under way in another thread soon returns."""
        self._stopped = True

    def starts(self, ids: Int64) -> Int64:
        """Where each document begins in `flat`; every id must have been ensured."""
        return self._starts[ids]

    def lengths(self, ids: Int64) -> Int64:
        """Tokens of each document, 0 for one that cannot be tokenised."""
        return self._lengths[ids]

    def take(self, ids: Int64) -> Tokens:
        """The documents' tokens, in the order given."""
        self.ensure(ids)
        return gather(self._column.flat, self._starts[ids], self._lengths[ids])

    def _grow(self, count: int) -> None:
        if count > len(self._starts):
            more = max(count, 2 * len(self._starts)) - len(self._starts)
            self._starts = np.concatenate([self._starts, np.zeros(more, dtype=np.int64)])
            self._lengths = np.concatenate([self._lengths, np.full(more, -1, dtype=np.int64)])

    def _encode(self, ids: Int64) -> None:
        flat, offsets, errors = encode_sound(self._encoder, self._store.texts(ids))
        self.errors.update({int(ids[place]): reason for place, reason in errors.items()})
        self._starts[ids] = self._column.append(flat) + offsets[:-1]
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
    encoder.encode([_INNOCENT])
    return _encode_by_halves(encoder, texts)


def _encode_by_halves(
    encoder: Encoder, texts: Sequence[str]
) -> tuple[Int32, Int64, dict[int, str]]:
    """The same of texts of which one failed at least, so that few are encoded alone."""
    try:
        return (*encoder.encode(texts), {})
    except BaseException as error:
        if not _is_of_a_text(error):
            raise
        if len(texts) == 1:
            nothing = np.empty(0, dtype=np.int32), np.zeros(2, dtype=np.int64)
            return (*nothing, {0: _reason(error)})
    half = len(texts) // 2
    flat, offsets, errors = _encode_by_halves(encoder, texts[:half])
    other, behind, more = _encode_by_halves(encoder, texts[half:])
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
