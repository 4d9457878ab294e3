"""What is under way with the engine."""

from __future__ import annotations

from dataclasses import dataclass

from covey.arrays import Int64
from covey.execution.report import OperatorReport
from covey.logical.calls import AICall


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
    wanted: Int64
    keys: Int64
    left: int
    reads: float
