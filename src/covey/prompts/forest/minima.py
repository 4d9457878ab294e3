"""Range minima over a fixed sequence, for many questions at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.arrays import Bool, Int32, Int64


class Minima:
    """Minima of every power-of-two stretch: n log n numbers, all questions vectorised.

    Args:
        values: (n,) integers that fit int32, n at least 1.
    """

    def __init__(self, values: npt.NDArray[np.integer]) -> None:
        level = np.ascontiguousarray(values, dtype=np.int32)
        self._count = len(level)
        self._levels = [level]
        width = 1
        while 2 * width <= self._count:
            level = np.minimum(level[: len(level) - width], level[width:])
            self._levels.append(level)
            width *= 2

    def over(self, first: Int64, stop: Int64) -> Int32:
        """min(values[first:stop]) for each pair; every stretch holds at least one value."""
        span = stop - first
        out = self._levels[0][first]  # right for stretches of one value
        longer = np.flatnonzero(span > 1)
        if len(longer):
            first, stop = first[longer], stop[longer]
            powers = np.frexp((stop - first).astype(np.float64))[1] - 1
            for power in np.unique(powers):
                level, of = self._levels[power], np.flatnonzero(powers == power)
                tail = stop[of] - (1 << int(power))
                out[longer[of]] = np.minimum(level[first[of]], level[tail])
        return out

    def first_below(self, start: Int64, threshold: Int64) -> Int64:
        """The first index >= start whose value is < threshold, n where there is none."""
        at = np.minimum(start, self._count).astype(np.int64)
        going = self._going(at, at < self._count, threshold, 0)
        position, bound = at[going], threshold[going]
        for power in range(len(self._levels) - 1, -1, -1):
            level, width = self._levels[power], 1 << power
            jump = position < len(level)
            jump[jump] = level[position[jump]] >= bound[jump]
            position[jump] += width
        at[going] = position
        return at

    def last_below(self, stop: Int64, threshold: Int64) -> Int64:
        """The last index < stop whose value is < threshold, -1 where there is none."""
        at = stop.astype(np.int64)  # everything in [at, stop) is known to be >= threshold
        going = self._going(at, at > 0, threshold, 1)
        position, bound = at[going], threshold[going]
        for power in range(len(self._levels) - 1, -1, -1):
            level, width = self._levels[power], 1 << power
            jump = position >= width
            jump[jump] = level[position[jump] - width] >= bound[jump]
            position[jump] -= width
        at[going] = position
        return at - 1

    def _going(self, at: Int64, inside: Bool, threshold: Int64, back: int) -> Int64:
        """Which searches do not end at their first value: few, so look before jumping."""
        candidates = np.flatnonzero(inside)
        values = self._levels[0][at[candidates] - back]
        return candidates[values >= threshold[candidates]]
