"""Texts that are none: half a surrogate pair, or bytes that are no UTF-8.

No database holds such a text. Where data with one is registered, U+FFFD stands in place of what is
broken, as in any other program, and behind it two noncharacters, which no text has. A document with
these, also one that SQL has made of such a text, is given to a model with half a surrogate pair
there: that no tokenizer takes, and its row alone fails.
"""

from __future__ import annotations

import codecs
from typing import Any

import pyarrow as pa

# Noncharacters of Unicode are no part of any text that is exchanged.
MARK = "\N{REPLACEMENT CHARACTER}\ufdd0\U0010fffe"
_HALF = "\ud800"


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError):
        return MARK.encode(), error.end
    if isinstance(error, UnicodeDecodeError):
        return MARK, error.end
    raise error


codecs.register_error("covey.broken", _mark)


def as_given(text: str) -> str:
    """A text, broken where it is marked."""
    return text.replace(MARK, _HALF)


def marked_texts(values: Any) -> pa.Array | None:
    """Texts with what is broken marked.

    Args:
        values: a column of pandas or Arrow.

    Returns:
        large strings; None where they are no texts, or none is broken.
    """
    if isinstance(values, pa.ChunkedArray):
        kind = values.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return None
        values = pa.concat_arrays([c.view(_bytes_of(kind)) for c in values.chunks]).to_pylist()
    texts: list[str | None] = []
    for value in values:
        if isinstance(value, str):
            texts.append(value.encode("utf-8", "covey.broken").decode())
        elif isinstance(value, bytes):
            texts.append(value.decode("utf-8", "covey.broken"))
        elif value is None or type(value).__name__ in ("float", "NAType"):
            texts.append(None)  # NaN and NA of pandas
        else:
            return None
    broken = any(text is not None and MARK in text for text in texts)
    return pa.array(texts, pa.large_string()) if broken else None


def _bytes_of(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
