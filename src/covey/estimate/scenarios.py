"""Selectivities of calls before anything has run, and those that dry runs are made with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covey.estimate.dry_result import DryResult
from covey.estimate.figures import Range
from covey.logical.calls import AICall

# Calls whose bounds are combined in every way; of more, all low and all high are run, and
# either with one call the other way; of more still, with some of them the other way: each run
# takes as long as the plan has calls.
MAX_COMBINED = 3
MAX_SINGLE = 6
MAX_SPLIT = 32
SPLITS = 3


@dataclass(frozen=True, slots=True)
class Selectivity(Range):
    """The share of a condition's rows that are TRUE, in [0, 1], and where it is known from.

    Attributes:
        source: "given" (by the query), "stored" (earlier answers), or "unknown".
    """

    source: str

    @classmethod
    def stored(cls, true: int, answered: int) -> Selectivity:
        """From earlier answers: the share of TRUE with its 95% interval (Wilson's)."""
        if not answered:
            return UNKNOWN
        share, z = true / answered, 1.96
        middle = (share + z * z / (2 * answered)) / (1 + z * z / answered)
        half = math.sqrt(share * (1 - share) / answered + z * z / (4 * answered * answered))
        half *= z / (1 + z * z / answered)
        return cls(max(middle - half, 0.0), share, min(middle + half, 1.0), "stored")

    @property
    def known(self) -> bool:
        return self.source != "unknown"


# Nothing is known; the middle stands for no knowledge, and nothing prints it.
UNKNOWN = Selectivity(0.0, 0.5, 1.0, "unknown")


def hinted(calls: Sequence[AICall]) -> dict[int, Selectivity]:
    """What the hints of the query tell, by index of a call."""
    hints = {call.index: call.options.selectivity for call in calls}
    return {
        index: UNKNOWN if hint is None else Selectivity(hint, hint, hint, "given")
        for index, hint in hints.items()
    }


def with_stored(known: Mapping[int, Selectivity], result: DryResult) -> dict[int, Selectivity]:
    """The selectivities with what earlier answers tell in the place of unknown ones.

    Args:
        known: by index of a call.
        result: of a dry run.
    """
    found = dict(known)
    for index, asked in result.asked.items():
        if asked.stored and not known[index].known:
            found[index] = Selectivity.stored(asked.stored_true, asked.stored)
    return found


def scenarios(
    known: Mapping[int, Selectivity], alike: Mapping[int, int] | None = None
) -> list[dict[int, float]]:
    """Selectivities to run with: first the expected ones, then what bounds them.

    Args:
        known: by index of a call.
        alike: by index of a call, the first call that is the same; None where all differ.
    """
    found = [{call: each.expected for call, each in known.items()}]
    first = {call: call if alike is None else alike[call] for call in known}
    open_calls = sorted({first[c] for c, each in known.items() if each.low < each.high})
    if not open_calls:
        return found
    for choice in _choices(len(open_calls)):
        high = {call for call, chosen in zip(open_calls, choice, strict=True) if chosen}
        found.append(
            {call: each.high if first[call] in high else each.low for call, each in known.items()}
        )
    return found


def _choices(count: int) -> list[tuple[bool, ...]]:
    """Which of some calls pass as often as may be in each run, the others as seldom."""
    if count <= MAX_COMBINED:
        return list(itertools.product((False, True), repeat=count))
    if count <= MAX_SINGLE:
        sets = [[i == one for i in range(count)] for one in range(count)]
    else:
        bits = range(SPLITS if count <= MAX_SPLIT else 1)
        sets = [[bool(i >> bit & 1) for i in range(count)] for bit in bits]
    flipped = [
        tuple(high != each for each in chosen)
        for high, chosen in itertools.product((False, True), sets)
    ]
    return [(False,) * count, (True,) * count, *flipped]
