"""Faults at every step of what talks to a disk: count the steps of a clean run, then fail each."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pytest

from effort import THOROUGH

# What the system, DuckDB and the user may do at any step.
FAULTS: tuple[Callable[[], BaseException], ...] = (
    lambda: OSError(errno.ENOSPC, "No space left on device"),
    lambda: OSError(errno.EIO, "Input/output error"),
    lambda: duckdb.IOException("IO Error: Could not write file: No space left on device"),
    lambda: duckdb.InternalException("INTERNAL Error: Attempted to dereference a null pointer"),
    lambda: duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block"),
    lambda: MemoryError(),
    lambda: KeyboardInterrupt(),
)

# Steps between those that fail in an ordinary run.
_STRIDE = 4


@dataclass
class Steps:
    """Counts steps, and fails at one of them.

    Attributes:
        at: the step that fails; None for none.
        fault: makes what is raised there.
        after: whether the step is done before it fails, as where its success is not heard of.
        taken: steps so far.
        names: what they were.
    """

    at: int | None = None
    fault: Callable[[], BaseException] = FAULTS[0]
    after: bool = False
    taken: int = 0
    names: list[str] = field(default_factory=list)

    def take(self, name: str, step: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Take a step, or fail."""
        number, self.taken = self.taken, self.taken + 1
        self.names.append(name)
        # A lock that was taken and not given would be waited for.
        if number == self.at and (name == "acquire" or not self.after):
            raise self.fault()
        result = step(*arguments, **named)
        if number == self.at:
            raise self.fault()
        return result

    def take_system(
        self, name: str, step: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """As `take`, of what calls the system: DuckDB's errors are not among its own."""
        try:
            return self.take(name, step, *arguments, **named)
        except duckdb.Error:
            raise OSError(errno.EIO, "Input/output error") from None


class Faulty:
    """An object whose methods are steps."""

    def __init__(self, real: Any, steps: Steps) -> None:
        self._real = real
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        # To let go of a file does not fail.
        if not callable(found) or name in ("close", "fileno"):
            return found
        return lambda *arguments, **named: self._steps.take(name, found, *arguments, **named)

    def __enter__(self) -> Faulty:
        self._real.__enter__()
        return self

    def __exit__(self, *how: Any) -> Any:
        return self._real.__exit__(*how)


@contextmanager
def failing_calls(
    steps: Steps, folder: str, calls: dict[str, tuple[type, str, Callable[[Any], str]]]
) -> Iterator[None]:
    """Make steps of some methods.

    Args:
        steps: counts them.
        folder: part of the paths that count.
        calls: a name, whose method it is, its name, and the path of an object.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, (owner, method, place) in calls.items():
            patch.setattr(owner, method, _step(steps, folder, name, getattr(owner, method), place))
        yield


def _step(
    steps: Steps, folder: str, name: str, real: Callable[..., Any], place: Callable[[Any], str]
) -> Callable[..., Any]:
    def step(itself: Any, *arguments: Any, **named: Any) -> Any:
        if folder not in place(itself):
            return real(itself, *arguments, **named)
        return steps.take_system(name, real, itself, *arguments, **named)

    return step


def chosen_faults(steps: int) -> Iterator[tuple[int, Callable[[], BaseException], bool]]:
    """Step, fault and whether it comes after it: all in `make fuzz`, else some."""
    everything = [(fault, after) for fault in FAULTS for after in (False, True)]
    if THOROUGH:
        yield from ((step, *each) for step in range(steps) for each in everything)
        return
    for number, step in enumerate(range(0, steps, _STRIDE)):
        yield (step, *everything[number * 5 % len(everything)])
