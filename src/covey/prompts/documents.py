"""Documents by content: every distinct text once, named by a dense id.

No database holds a text that is none: half a surrogate pair, or bytes that are no UTF-8. Where
data with one is registered, U+FFFD stands in place of what is broken, as in any other program,
and behind it two noncharacters, which no text has (`marked_texts`). A document with these, also
one that SQL has made of such a text, is given to a model with half a surrogate pair there: that
no tokenizer takes, and its row alone fails.
"""

from __future__ import annotations

import codecs
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.arrays import Int64, UInt8, UInt64
from covey.prompts.column import Column
from covey.prompts.digests import UNKNOWN, DigestIndex, digests

NULL_ID = -1

# Bytes of text from which they lie in a temporary file; see `Column`.
SPILL_BYTES = 4 << 20


# Noncharacters of Unicode are no part of any text that is exchanged.
_BROKEN = "\N{REPLACEMENT CHARACTER}\ufdd0\U0010fffe"
_HALF = "\ud800"


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError):
        return _BROKEN.encode(), error.end
    if isinstance(error, UnicodeDecodeError):
        return _BROKEN, error.end
    raise error


codecs.register_error("covey.broken", _mark)


class DocumentStore:
    """Gives equal texts equal ids, 0, 1, 2 … in order of first sight.

    Ids stay valid for the life of the store. Texts are kept: a document is tokenised
    when an engine first needs it, and reports may need its words.

    Any thread may call any method. One at a time adds, whichever holds `_adding`. Reading
    takes no lock: columns only grow, and an id is given out when all of its text is there.

    Args:
        spill_bytes: bytes of text that are kept in memory; more lie in a temporary file.
    """

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._adding = threading.Lock()
        self._index = DigestIndex()
        self._digests = Column(np.uint64, spill_bytes)
        self._bytes = Column(np.uint8, spill_bytes)
        self._ends = Column(np.int64, spill_bytes)
        self._ends.append(np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self._index)

    def add(self, texts: pa.Array | pa.ChunkedArray | Sequence[str | None]) -> Int64:
        """Return the id of each text, adding those not seen before.

        Args:
            texts: (n,) strings; NULL allowed.

        Returns:
            (n,) int64 ids; `NULL_ID` where the text is NULL.
        """
        encoded = pc.dictionary_encode(_as_bytes(texts))
        if not len(encoded.dictionary):
            return np.full(len(encoded), NULL_ID)
        ends, data = _buffers(encoded.dictionary)
        view, edges = data.data, ends.tolist()
        wanted = digests(view[a:b] for a, b in itertools.pairwise(edges))
        with self._adding:
            ids = self._index.find(wanted)
            new = np.flatnonzero(ids == UNKNOWN)
            if len(new):
                self._keep(ends, data, new)
                self._digests.append(wanted[new].ravel())
                ids[new] = self._index.add(wanted[new])
        # One more, so that a NULL's index of -1 finds it.
        ids = np.append(ids, NULL_ID)
        found: Int64 = ids[encoded.indices.fill_null(-1).to_numpy()]
        return found

    def _keep(self, ends: Int64, data: UInt8, new: Int64) -> None:
        lengths = np.diff(ends)[new]
        if len(new) < len(ends) - 1:
            mask = np.zeros(len(ends) - 1, np.bool_)
            mask[new] = True
            data = data[np.repeat(mask, np.diff(ends))]
        start = self._bytes.append(data)
        self._ends.append(start + np.cumsum(lengths))

    def texts(self, ids: Int64) -> list[str]:
        """The texts of some ids, in the order given. No id may be `NULL_ID`."""
        ends, data = self._ends.flat, self._bytes.flat.data
        starts, stops = ends[ids].tolist(), ends[ids + 1].tolist()
        return [
            str(data[a:b], "utf-8", "surrogatepass").replace(_BROKEN, _HALF)
            for a, b in zip(starts, stops, strict=True)
        ]

    def sizes(self, ids: Int64) -> Int64:
        """Bytes of UTF-8 of some documents, in the shape of `ids`."""
        ends = self._ends.flat
        sizes: Int64 = ends[ids + 1] - ends[ids]
        return sizes

    def digests(self, ids: Int64) -> UInt64:
        """What names the texts of some ids everywhere: (..., 2) uint64."""
        found: UInt64 = self._digests.flat.reshape(-1, 2)[ids]
        return found


def _as_bytes(texts: pa.Array | pa.ChunkedArray | Sequence[str | None]) -> pa.Array:
    """Texts as one array of bytes. A lone surrogate, which only Python has, is kept."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
        # Texts of more than 2 GiB stay in several chunks, even so.
        if isinstance(texts, pa.ChunkedArray):
            texts = pa.concat_arrays([c.cast(pa.large_binary()) for c in texts.chunks])
    if isinstance(texts, pa.Array):
        return texts.cast(pa.large_binary())
    return pa.array(
        [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts],
        pa.large_binary(),
    )


def _buffers(texts: pa.Array) -> tuple[Int64, UInt8]:
    """(n + 1,) offsets from 0, and the bytes of n > 0 texts without NULL."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends - ends[0], whole[ends[0] : ends[-1]]


def common_beginning(one: str, other: str) -> int:
    """Characters that two texts share before the first that differs."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


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
    broken = any(text is not None and _BROKEN in text for text in texts)
    return pa.array(texts, pa.large_string()) if broken else None


def _bytes_of(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
