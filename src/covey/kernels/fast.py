"""Faster, lossier ways to compute a model on a Hopper GPU; none is on unless asked for.

They change margins by more than rounding, so each that is on is part of an answer's identity.
`bench/hopper options` measures what they gain and how many answers they flip. No torch here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from covey.errors import InputError

_BLOCKS, _ATTENTION = "fp8-blocks", "fp8-attention"
FAST_NAMES = (_BLOCKS, _ATTENTION)


@dataclass(frozen=True, slots=True)
class Fast:
    """Which of them are on.

    Attributes:
        blocks: products in FP8 where the checkpoint does not hold FP8: its weights are rounded
            in blocks of 128 x 128 when they are loaded, and run as those of an FP8 checkpoint.
        attention: queries, keys and values in FP8 where long context is attended to; what is
            kept of them stays BF16.
    """

    blocks: bool = False
    attention: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What a user calls those that are on, in the order of `FAST_NAMES`."""
        on = zip(FAST_NAMES, (self.blocks, self.attention), strict=True)
        return tuple(name for name, chosen in on if chosen)


EXACT = Fast()


def read_fast(names: str | Iterable[str]) -> Fast:
    """The ways of these names; one may stand for itself.

    Raises:
        InputError: there is no way of a name, in which case it names the nearest; or it is
            no name.
    """
    if not isinstance(names, str | Iterable):
        raise InputError(f"fast is a list of names: {', '.join(FAST_NAMES)}; not {names!r}.")
    chosen = [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in FAST_NAMES:
            near = difflib.get_close_matches(str(name), FAST_NAMES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise InputError(f"fast has no {name!r}.{hint} Known: {', '.join(FAST_NAMES)}.")
    return Fast(_BLOCKS in chosen, _ATTENTION in chosen)
