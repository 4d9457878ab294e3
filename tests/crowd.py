"""Threads that start together and change places all the time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
# Against a test that hangs; none comes near it.
PATIENCE = 60.0


@contextmanager
def restless() -> Iterator[None]:
    """Python lets another thread on after a microsecond, and not after five thousand."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """What `work` gives for 0, 1, 2 …, each in a thread of its own."""
    together = threading.Barrier(threads)

    def begin(number: int) -> T:
        together.wait(PATIENCE)
        return work(number)

    with restless(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads), timeout=PATIENCE))
