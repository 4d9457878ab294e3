"""Where the answer store lies, and how large it may grow."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from covey.errors import InputError
from covey.hardware.paths import cache_folder

DEFAULT_MAX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How answers are kept between runs.

    Attributes:
        path: a folder; None takes the one that `COVEY_CACHE` names, or the platform's.
        max_bytes: size of the file from which the oldest answers go.
        max_days: answers older than this are asked again; None keeps them.

    Raises:
        InputError: a limit that is no number above 0, or a path that is no folder.
    """

    path: str | PathLike[str] | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    max_days: float | None = None

    def __post_init__(self) -> None:
        limits = (self.max_bytes, 1 if self.max_days is None else self.max_days)
        # NaN is above nothing.
        if not all(isinstance(limit, int | float) and limit > 0 for limit in limits):
            raise InputError(
                "The limits of the answer store are numbers above 0: max_bytes, max_days."
            )
        if self.path is not None and Path(self.path).exists() and not Path(self.path).is_dir():
            raise InputError(f"The answer store {self.path} is a file. Name a folder.")

    @property
    def folder(self) -> Path:
        return cache_folder() if self.path is None else Path(self.path).absolute()


def cache_options(cache: bool | str | PathLike[str] | CacheOptions) -> CacheOptions | None:
    """What `connect(cache=…)` means; None where no answers are kept.

    Raises:
        InputError: it is of no kind that says so.
    """
    if isinstance(cache, CacheOptions):
        return cache
    if isinstance(cache, bool):
        return CacheOptions() if cache else None
    if isinstance(cache, str | PathLike) and str(cache):
        return CacheOptions(cache)
    raise InputError(
        f"cache is True, False, a folder or covey.CacheOptions, which {cache!r} is not."
    )
