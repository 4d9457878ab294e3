"""Reading a model's files, which are input like any other: nothing about them is taken on trust.

Files are read, never mapped: one that is cut off while it is mapped ends the process. What
opens must be a regular file (a named pipe would wait), what is read must be there to the last
byte, and whatever the system says against it is a ModelError that names the file. Weights are
hashed as they are read, so that a fingerprint is that of the very bytes that are used.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from covey.arrays import UInt8
from covey.errors import ModelError

# Read and hashed at a time, each by a thread. With the processor's own instructions SHA-256 takes
# 1.7 GB a second of a core, which is 0.06 s of SmolLM2; to fill fresh memory takes as long.
_BLOCK = 4 << 20
_THREADS = min(8, os.cpu_count() or 1)
_FETCH = "Fetch the file again."
_MOST_JSON = 256 << 20  # the largest tokenizers have some 35 MB


class WeightFile:
    """A regular file that stays open while weights are read from it.

    Attributes:
        size: its bytes.

    Raises:
        ModelError: it cannot be opened, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _opened(path)
        weakref.finalize(self, self._file.close)
        self._state = self._now()
        self.size = self._state[0]
        self._digests: dict[tuple[int, int], bytes] = {}

    def read(self, start: int, stop: int) -> UInt8:
        """The bytes from `start` to before `stop`, in a new array; ModelError if it ends before."""
        out = np.empty(stop - start, dtype=np.uint8)
        blocks = [out[at : at + _BLOCK] for at in range(0, len(out), _BLOCK)]
        self._digests[start, stop] = _joined(self._hashed(start, blocks))
        return out

    def digest(self, start: int, stop: int) -> bytes:
        """Digest of the bytes from `start` to before `stop`, as they were when last read."""
        if (start, stop) not in self._digests:
            block = np.empty(min(stop - start, _BLOCK), dtype=np.uint8)
            self._digests[start, stop] = _joined(
                digest
                for at in range(start, stop, _BLOCK)
                for digest in self._hashed(at, [block[: min(_BLOCK, stop - at)]])
            )
        return self._digests[start, stop]

    def fingerprint(self, pieces: Iterable[tuple[int, int]]) -> str:
        """Hex digest of all bytes of the file, of which each is read once.

        Args:
            pieces: (start, stop) of what is read together, in any order, without overlap.

        Raises:
            ModelError: the file has changed since it was opened, or cannot be read.
        """
        digest = hashlib.sha256()
        at = 0
        for start, stop in [*sorted(pieces), (self.size, self.size)]:
            for piece in ((at, start), (start, stop)):
                digest.update(b"%d %d " % piece + self.digest(*piece))
            at = stop
        if self._now() != self._state:
            raise ModelError(f"{self.path} was changed while it was read. Load the model again.")
        return digest.hexdigest()

    def _hashed(self, start: int, blocks: list[UInt8]) -> list[bytes]:
        """Fill blocks with what follows `start` in the file; the digest of each."""
        places = itertools.accumulate(map(len, blocks), initial=start)
        if len(blocks) < 2:
            return [self._fill(*piece) for piece in zip(places, blocks, strict=False)]
        with ThreadPoolExecutor(_THREADS, "covey-read") as pool:
            return list(pool.map(self._fill, places, blocks))

    def _fill(self, at: int, block: UInt8) -> bytes:
        read_exactly(self._file, at, block.data, self.path)
        return hashlib.sha256(block.data).digest()

    def _now(self) -> tuple[int, ...]:
        with _reported(self.path):
            found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_json(path: Path, missing: str = _FETCH) -> dict[str, Any]:
    """The object that a JSON file of moderate size holds.

    Args:
        missing: the mend where there is none.

    Raises:
        ModelError: it is missing, too large, no regular file, or cannot be read; or is no JSON,
            holds a number or a nesting that no reader agrees on, or says a key twice.
    """
    with _opened(path, missing) as file:
        with _reported(path):
            size = os.fstat(file.fileno()).st_size
        if size > _MOST_JSON:
            raise ModelError(f"{path} is {size:,} bytes large, which no file of its kind is.")
        with _reported(path):
            content = bytearray(size)
        read_exactly(file, 0, memoryview(content), path)
    return parse_json(content, path)


def parse_json(content: bytes | bytearray, path: Path) -> dict[str, Any]:
    """See `read_json`; `path` is for messages."""
    try:
        parsed = json.loads(
            content.decode(), object_pairs_hook=_without_repeats, parse_constant=_no_number
        )
    except RecursionError:
        raise ModelError(f"{path} cannot be read: it nests too deeply.") from None
    except MemoryError:
        raise ModelError(f"There is not enough memory to read {path}.") from None
    except ValueError as error:
        raise ModelError(f"{path} cannot be read: {error}. {_FETCH}") from error
    if not isinstance(parsed, dict):
        raise ModelError(f"{path} cannot be read: it holds no JSON object. {_FETCH}")
    return parsed


def read_exactly(file: FileIO, start: int, out: memoryview, path: Path) -> None:
    """Fill a buffer with what follows `start`; ModelError where the file ends before."""
    done = 0
    while done < len(out):
        with _reported(path):
            count = os.preadv(file.fileno(), [out[done:]], start + done)
        if not count:
            raise ModelError(
                f"{path} is damaged or cut off: it ends {len(out) - done:,} bytes too early."
                f" {_FETCH}"
            )
        done += count


def _opened(path: Path, missing: str = _FETCH) -> FileIO:
    with _reported(path, missing):
        file = FileIO(str(path), "r", opener=_without_waiting)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise ModelError(f"{path} is no regular file. Weights are read from files on a disk.")


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def _reported(path: Path, missing: str = _FETCH) -> Iterator[None]:
    """Turns what the system says against a file into a ModelError that names it."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{path} is missing. {missing}") from None
    except MemoryError:
        raise ModelError(f"There is not enough memory to read {path}.") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise ModelError(f"{path} cannot be read: {error}.") from error


def _joined(digests: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"".join(digests)).digest()


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"it says {key!r} twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")
