"""What is under way with the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.execution.report import OperatorReport
from covey.logical.calls import AICall

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class CallUnderWay:
    """A call with prompts under way, as its progress line shows it."""

    call: AICall
    operator: OperatorReport
    total: int = 0
    done: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Ticket:
    """A batch under way: its prompts, their keys, and how many have no answer yet."""

    asking: CallUnderWay
    wanted: Ints
    keys: Ints
    left: int
    reads: float
