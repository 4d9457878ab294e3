"""Gigatoken where it is installed and gives the very same tokens; else the plain encoder.

Gigatoken is an independent implementation, and a token that differs is a prompt that
differs. Every batch is therefore checked on a sample of its own texts against the plain
encoder, and after the first difference it is used no more.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.arrays import Int32, Int64
from covey.hardware import forks
from covey.prompts.tokens import Encoder

_SAMPLE = 32  # texts of a batch that both encode
_WORTH = 4 * _SAMPLE  # batches of fewer texts gain nothing


class CheckedEncoder:
    """Encodes with Gigatoken as long as it agrees; see `Encoder`.

    Any thread may encode: the only thing that changes is `trusted`, once and for good.

    Args:
        plain: what is right.
        fast: a `gigatoken.Tokenizer` of the same vocabulary.

    Attributes:
        trusted: False once the two have differed.
    """

    def __init__(self, plain: Encoder, fast: Any) -> None:
        self._plain = plain
        self._fast = fast
        self.trusted = True

    def ids(self, text: str) -> list[int]:
        """See `Encoder.ids`."""
        return self._plain.ids(text)

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        """See `Encoder.encode`."""
        if not self.trusted or len(texts) < _WORTH:
            return self._plain.encode(texts)
        for text in texts:
            text.encode()  # a lone surrogate raises here, as with the plain encoder
        found = self._encode_fast(texts)
        if found is not None and self._agrees(texts, *found):
            return found
        self.trusted = False
        return self._plain.encode(texts)

    def _encode_fast(self, texts: Sequence[str]) -> tuple[Int32, Int64] | None:
        """Gigatoken's columns; None where it fails, or they are none."""
        try:
            layout = self._fast.encode_batch(list(texts)).layout
            offsets = np.asarray(layout.offsets).astype(np.int64)
            flat = np.asarray(layout.content.data)[: offsets[-1]].astype(np.int32)
        except Exception:  # whatever it raises, the plain encoder knows better
            return None
        sound = len(offsets) == len(texts) + 1 and offsets[0] == 0 and offsets[-1] == len(flat)
        return (flat, offsets) if sound and (np.diff(offsets) >= 0).all() else None

    def _agrees(self, texts: Sequence[str], flat: Int32, offsets: Int64) -> bool:
        """Whether a sample, spread over the batch, has the plain encoder's tokens."""
        rows = np.linspace(0, len(texts) - 1, _SAMPLE).astype(np.int64).tolist()
        right, bounds = self._plain.encode([texts[row] for row in rows])
        return all(
            np.array_equal(flat[offsets[row] : offsets[row + 1]], right[bounds[i] : bounds[i + 1]])
            for i, row in enumerate(rows)
        )


def checked_encoder(plain: Encoder, tokenizer_json: str) -> Encoder:
    """Gigatoken beside the plain encoder, made of its tokenizer.json; or that alone without it."""
    if forks.was_forked():
        return plain  # threads that it may have started before are gone
    try:
        gigatoken = importlib.import_module("gigatoken")
        fast = gigatoken.Tokenizer.from_json(tokenizer_json)
    except Exception:  # not installed, or the vocabulary is not of a kind it knows
        return plain
    return CheckedEncoder(plain, fast)
