"""A growing row of numbers, in memory while it is short and in a file once it is long."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item", bound=np.generic)

# Bytes from which a column lies in a temporary file, mapped into memory: the system then
# keeps what is in use, and documents larger than memory still run.
SPILL_BYTES = 1 << 30
_FIRST_BYTES = 4096


class Column(Generic[Item]):
    """Append-only numbers.

    One thread at a time appends, which whoever holds the column sees to; others may read
    meanwhile what they know to be there.

    Args:
        spill_bytes: size from which they move to a temporary file, which goes with the
            column.
    """

    def __init__(self, dtype: type[Item], spill_bytes: int = SPILL_BYTES) -> None:
        self._dtype = np.dtype(dtype)
        self._spill = spill_bytes // self._dtype.itemsize
        self._items: npt.NDArray[Item] = np.empty(_FIRST_BYTES // self._dtype.itemsize, dtype)
        self._used = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._used

    @property
    def flat(self) -> npt.NDArray[Item]:
        """All numbers so far; the view stays valid, later ones are not in it."""
        return self._items[: self._used]

    def append(self, items: npt.NDArray[Any]) -> int:
        """Add numbers at the end; returns where they begin."""
        start, end = self._used, self._used + len(items)
        if end > len(self._items):
            self._grow(max(end, 2 * len(self._items)))
        self._items[start:end] = items
        self._used = end
        return start

    def _grow(self, count: int) -> None:
        if count <= self._spill:
            larger: npt.NDArray[Item] = np.empty(count, dtype=self._dtype)
            larger[: self._used] = self.flat
            self._items = larger
            return
        moves = self._file is None
        if self._file is None:
            # It is closed, and so deleted, when the column goes.
            self._file = tempfile.TemporaryFile(prefix="covey-column-")  # noqa: SIM115
        os.ftruncate(self._file.fileno(), self._dtype.itemsize * count)
        mapped = np.memmap(self._file, dtype=self._dtype, mode="r+", shape=(count,))
        if moves:
            mapped[: self._used] = self.flat
        self._items = mapped
