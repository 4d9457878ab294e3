"""A growing row of token ids, in memory while it is short and in a file once it is long."""

from __future__ import annotations

import os
import tempfile
from typing import IO

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]

# Bytes from which a column lies in a temporary file, mapped into memory: the system then
# keeps what is in use, and documents larger than memory still run.
SPILL_BYTES = 1 << 30
_FIRST = 1024


class TokenColumn:
    """Append-only int32 ids.

    Args:
        spill_bytes: size from which the ids move to a temporary file, which goes with
            the column.
    """

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._spill = spill_bytes // 4
        self._ids: Int32 = np.empty(_FIRST, dtype=np.int32)
        self._used = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._used

    @property
    def flat(self) -> Int32:
        """All ids so far; the view stays valid, later ids are not in it."""
        return self._ids[: self._used]

    @property
    def spilled(self) -> bool:
        """Whether the ids lie in a file."""
        return self._file is not None

    def append(self, ids: Int32) -> int:
        """Add ids at the end; returns where they begin."""
        start, end = self._used, self._used + len(ids)
        if end > len(self._ids):
            self._grow(max(end, 2 * len(self._ids)))
        self._ids[start:end] = ids
        self._used = end
        return start

    def _grow(self, count: int) -> None:
        if count <= self._spill:
            larger = np.empty(count, dtype=np.int32)
            larger[: self._used] = self.flat
            self._ids = larger
            return
        moves = self._file is None
        if self._file is None:
            # It is closed, and so deleted, when the column goes.
            self._file = tempfile.TemporaryFile(prefix="covey-tokens-")  # noqa: SIM115
        os.ftruncate(self._file.fileno(), 4 * count)
        mapped = np.memmap(self._file, dtype=np.int32, mode="r+", shape=(count,))
        if moves:
            mapped[: self._used] = self.flat
        self._ids = mapped
