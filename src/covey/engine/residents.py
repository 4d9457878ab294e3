"""What lives in the KV arena: spans, and the paths admitted to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from covey.engine.slots import Extent
from covey.errors import InputError


@dataclass(slots=True, eq=False)
class Span:
    """A resident forest node. Read it; only its pool changes it.

    Attributes:
        number: unique in its pool, ascending in time.
        parent: the span above, None at a root.
        depth: tokens above its first.
        extents: its slots, in token order.
        length: tokens.
        pending: children that have yet to run and are not resident.
        reuse: how many later operators are expected to read it.
        pins: admitted paths that end above or at it, and children that are held.
        children: resident spans right below it, by number.
        resident: False once its slots are given away.
    """

    number: int
    parent: Span | None
    depth: int
    extents: tuple[Extent, ...]
    length: int
    pending: int
    reuse: float
    pins: int = 0
    children: dict[int, Span] = field(default_factory=dict)
    resident: bool = True

    @property
    def wanted(self) -> bool:
        """Whether anything planned will read it."""
        return self.pending > 0 or self.reuse > 0

    def path(self) -> list[Span]:
        """The spans from the root down to this one."""
        spans: list[Span] = []
        span: Span | None = self
        while span is not None:
            spans.append(span)
            span = span.parent
        return spans[::-1]


@dataclass(slots=True, eq=False)
class Admission:
    """A path that has room. Its pool fills it in.

    Attributes:
        parent: the resident span it hangs on, None for a whole path.
        lengths: tokens of the nodes below, top down.
        placed: the spans of the first of them.
        active: False after `finish`, `cancel` or `release_all`.
    """

    parent: Span | None
    lengths: tuple[int, ...]
    placed: list[Span] = field(default_factory=list)
    active: bool = True

    @property
    def reserved(self) -> int:
        """Slots promised and not yet placed."""
        return sum(self.lengths[len(self.placed) :])


def family(span: Span) -> list[Span]:
    """A span and the resident spans below it, parents first."""
    members = [span]
    for member in members:  # grows while it is read
        members.extend(member.children.values())
    return members


def check_plan(pending: int, reuse: float) -> None:
    """Refuse numbers that no plan can have."""
    if pending < 0 or not reuse >= 0.0:
        raise InputError(f"pending and reuse must be 0 or more, not {pending} and {reuse}")
