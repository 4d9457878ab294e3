"""Documents by content: every distinct text once, named by a dense id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NULL_ID = -1


class DocumentStore:
    """Gives equal texts equal ids, 0, 1, 2 … in order of first sight.

    Ids stay valid for the life of the store. Texts are kept: a document is
    tokenised when an engine first needs it, and reports may need its words.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(
        self, texts: pa.Array | pa.ChunkedArray | Sequence[str | None]
    ) -> npt.NDArray[np.int64]:
        """Return the id of each text, adding those not seen before.

        Args:
            texts: (n,) strings; NULL allowed.

        Returns:
            (n,) int64 ids; `NULL_ID` where the text is NULL.
        """
        values = texts.to_pylist() if isinstance(texts, pa.Array | pa.ChunkedArray) else texts
        ids = np.empty(len(values), dtype=np.int64)
        known = self._ids
        for i, text in enumerate(values):
            if text is None:
                ids[i] = NULL_ID
                continue
            found = known.get(text)
            if found is None:
                found = known[text] = len(self._texts)
                self._texts.append(text)
            ids[i] = found
        return ids

    def texts(self, ids: npt.NDArray[np.int64]) -> list[str]:
        """The texts of some ids, in the order given. No id may be `NULL_ID`."""
        return [self._texts[i] for i in ids.tolist()]
