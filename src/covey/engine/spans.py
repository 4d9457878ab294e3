"""Who owns each KV slot, and until when.

Bookkeeping only; tensors live elsewhere. One slot is one token in all layers. A *span* is
a forest node's slots: one stretch, for which neighbours are evicted if need be, or several
where held spans stand in the way, so that fragmentation never refuses what the counts allow.
A slot is *held* (an admitted path runs through it), *kept* (its span waits for children or
for a later operator) or *free*; after every public call held + kept + free == capacity.

**Admission.** Work enters as a path: the nodes from a resident span (or from nothing) down
to a leaf. `admit` holds what is resident above it and reserves slots for all the rest, or
does nothing. Only admitted paths hold slots, each has all it will ever need, and whatever
is kept can be evicted, leaves first. Hence no path waits for another: when none is in
flight every path that fits the arena is admitted, and one that never can fit is refused at
once. There is no deadlock to detect.

**Lifetime.** A span no admitted path runs through stays while `pending` children are still
to run, or with `reuse` > 0, the reads expected of later operators; then it is freed, and
so are ancestors that stayed only for it. While it stays it may be evicted (see
`covey.engine.retention`) and leaves its plan to the span above, which is read whenever it
is: one more pending child if it had any, its reuse if that is higher.

    admission = pool.admit(parent, [instruction, body])      # None: try again after a `finish`
    span = pool.place(admission, pending=3)  # instruction, then body, top down
    pool.finish(admission)                             # when the chunk has run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from covey.engine.residents import Admission, Span, check_plan, family
from covey.engine.retention import Retention
from covey.engine.slots import Slots
from covey.errors import InputError, RunError

__all__ = ["Admission", "Span", "SpanPool"]


class SpanPool:
    """The slots of one arena.

    Args:
        capacity: slots.
        retention: decides what is evicted; this pool's alone.
        on_drop: told of every span that is freed or evicted, once it is off the books.

    Attributes:
        held, kept: slots, as in the module's text.
        reserved: slots promised to admissions; they are among the free and kept ones.
        peak: the most slots that were held or kept at a time.
        split: spans that had to be placed in several stretches.
        evictions: spans evicted.
    """

    def __init__(
        self,
        capacity: int,
        retention: Retention,
        on_drop: Callable[[Span], None] | None = None,
    ) -> None:
        if capacity < 1:
            raise InputError(f"a KV arena needs at least one slot, not {capacity}")
        self.retention = retention
        self._on_drop = on_drop
        self.held = 0
        self.kept = 0
        self.reserved = 0
        self.peak = 0
        self.split = 0
        self.evictions = 0
        self._slots = Slots(capacity)
        self._spans: dict[int, Span] = {}
        self._admissions: set[Admission] = set()
        self._next = 0

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._slots.capacity

    @property
    def free(self) -> int:
        """Slots in no span."""
        return self._slots.free

    @property
    def available(self) -> int:
        """Slots that an admission could have now, evicting all that is kept."""
        return self.free + self.kept - self.reserved

    def spans(self) -> Iterator[Span]:
        """The resident spans, oldest first."""
        return iter(tuple(self._spans.values()))

    def admit(self, parent: Span | None, lengths: Sequence[int]) -> Admission | None:
        """Guarantee room for a path, to its leaf.

        Args:
            parent: the resident span that the path continues, None for none.
            lengths: tokens of each node still to be placed, top down, each at least 1;
                none to hold `parent` alone, for work that leaves nothing resident.

        Returns:
            The admission, or None where admitted paths hold too much for now. It is never
            None while no other path is admitted.

        Raises:
            InputError: a length is less than 1.
            RunError: the path is longer than the arena, or `parent` is not resident.
        """
        if any(length < 1 for length in lengths):
            raise InputError(f"nodes hold at least one token, not {min(lengths)}")
        above = 0
        if parent is not None:
            self._check_resident(parent)
            above = parent.depth + parent.length
        need = sum(lengths)
        if above + need > self.capacity:
            raise RunError(
                f"a prompt of {above + need:,} tokens needs as many KV slots; the arena has "
                f"{self.capacity:,}. Shorten the document or give the model more memory."
            )
        if parent is not None:
            self._pin(parent)
        if need > self.available:
            if parent is not None:
                self._unpin(parent)
            return None
        self.reserved += need
        admission = Admission(parent, tuple(lengths))
        self._admissions.add(admission)
        return admission

    def place(self, admission: Admission, *, pending: int = 0) -> Span:
        """Give the path's next node its slots, evicting what is kept if need be.

        Args:
            admission: active, with a node left to place.
            pending: children of the node that will run, this path's own not counted.

        Raises:
            InputError: `pending` is negative.
            RunError: the admission is over, or its path is placed to the end.
        """
        check_plan(pending, 0.0)
        self._check_active(admission)
        if len(admission.placed) == len(admission.lengths):
            raise RunError("the admitted path is placed to its end; admit a longer one")
        length = admission.lengths[len(admission.placed)]
        parent = admission.placed[-1] if admission.placed else admission.parent
        self._make_room(length)
        extents = self._slots.take(length, self._next)
        depth = parent.depth + parent.length if parent is not None else 0
        span = Span(self._next, parent, depth, extents, length, pending, 0.0, pins=1)
        self._next += 1
        self._spans[span.number] = span
        if parent is not None:
            parent.children[span.number] = span
            parent.pins += 1  # by its held child; the admission already holds it
        admission.placed.append(span)
        self.reserved -= length
        self.held += length
        self.peak = max(self.peak, self.held + self.kept)
        self.split += len(extents) > 1
        return span

    def finish(self, admission: Admission) -> None:
        """The path has run, or as much of it as ever will: hold it no longer.

        Raises:
            RunError: the admission is over.
        """
        self._close(admission)
        for span in reversed(admission.placed):
            self._unpin(span)
        if admission.parent is not None:
            self._unpin(admission.parent)

    def cancel(self, admission: Admission) -> None:
        """Take back a path whose keys and values were not, or only partly, computed.

        Its spans are dropped, whatever was planned for them.

        Raises:
            RunError: the admission is over, or another path stands on its spans and has
                to be cancelled or finished first.
        """
        self._check_active(admission)
        for i, span in enumerate(admission.placed):
            own = 2 if i + 1 < len(admission.placed) else 1
            if span.pins > own:
                raise RunError(
                    f"span {span.number} of the cancelled path is held by another admission; "
                    "cancel or finish that one first"
                )
        self._close(admission)
        for span in reversed(admission.placed):
            for below in family(span)[:0:-1]:  # kept children of a path that has finished
                self._drop(below)
            span.pending, span.reuse = 0, 0.0
            self._unpin(span)
        if admission.parent is not None:
            self._unpin(admission.parent)

    def done(self, span: Span) -> None:
        """One of its pending children has run, or never will.

        Raises:
            RunError: the span is not resident or has no pending children.
        """
        self._check_resident(span)
        if not span.pending:
            raise RunError(f"span {span.number} has no pending children")
        span.pending -= 1
        self._settle(span)

    def plan(self, span: Span, *, pending: int | None = None, reuse: float | None = None) -> None:
        """Change what is planned for a resident span; None leaves a number as it is.

        Raises:
            InputError: a number is out of range.
            RunError: the span is not resident.
        """
        self._check_resident(span)
        pending = span.pending if pending is None else pending
        reuse = span.reuse if reuse is None else reuse
        check_plan(pending, reuse)
        span.pending, span.reuse = pending, reuse
        self._settle(span)

    def cut(self, span: Span, length: int) -> Span:
        """Cut a resident span in two, for what shares only its first `length` tokens.

        Slots, holds and plans stay; `span` becomes the lower part, the new span is the upper.

        Raises:
            InputError: `length` leaves one part without a token.
            RunError: the span is not resident.
        """
        self._check_resident(span)
        if not 0 < length < span.length:
            raise InputError(f"a span of {span.length} tokens cannot be cut after {length}")
        parent, number = span.parent, self._next
        self._next += 1
        first, rest = self._slots.split(span.extents, length, number)
        upper = Span(number, parent, span.depth, first, length, 0, 0.0, min(span.pins, 1))
        upper.children[span.number] = span
        self._spans[number] = upper
        if parent is not None:
            del parent.children[span.number]
            parent.children[number] = upper
        span.parent, span.extents = upper, rest
        span.depth, span.length = span.depth + length, span.length - length
        self._settle(span)
        return upper

    def release_all(self) -> None:
        """Free every slot and end every admission, also in the middle of a failure."""
        for span in self._spans.values():
            span.resident = False
        for admission in self._admissions:
            admission.active = False
        self._spans.clear()
        self._admissions.clear()
        self._slots = Slots(self.capacity)
        self.held = self.kept = self.reserved = 0
        self.retention.forget()

    def _make_room(self, length: int) -> None:
        """Evict until `length` slots are free, and in one stretch if that can be had."""
        while self.free < length:
            least = self.retention.least()
            if least is None:
                raise RunError("KV accounting is off: slots were promised that cannot be freed")
            self._evict(least)
        while self._slots.largest < length:
            beside = [n for n in self._slots.around_largest() if n in self.retention]
            if not beside:  # held spans, or ancestors of others, stand on both sides
                return
            self._evict(min(beside, key=lambda number: (self.retention[number], -number)))

    def _evict(self, number: int) -> None:
        span = self._spans[number]
        self.evictions += 1
        parent = span.parent
        self._drop(span)
        if parent is not None:
            parent.pending += span.pending > 0  # it has to run again before its children
            parent.reuse = max(parent.reuse, span.reuse)
            self._settle(parent)

    def _pin(self, span: Span) -> None:
        """Hold a span and, if it was not held, all spans above it."""
        above: Span | None = span
        while above is not None:
            above.pins += 1
            if above.pins > 1:
                return
            self.kept -= above.length
            self.held += above.length
            self.retention.withdraw(above.number)
            above = above.parent

    def _unpin(self, span: Span) -> None:
        """Take back one hold; spans no longer held are kept or freed."""
        below: Span | None = span
        while below is not None:
            below.pins -= 1
            if below.pins:
                return
            self.held -= below.length
            self.kept += below.length
            above = below.parent
            self._settle(below)
            below = above

    def _settle(self, span: Span) -> None:
        """Offer, or free, a span that nothing holds and nothing resident stands on."""
        at: Span | None = span
        while at is not None and not at.pins and not at.children:
            if at.wanted:
                reads = max(at.reuse, float(at.pending > 0))
                value = self.retention.value(at.depth, at.length, reads)
                self.retention.offer(at.number, value)
                return
            above = at.parent
            self._drop(at)
            at = above

    def _drop(self, span: Span) -> None:
        """Free a kept span without children."""
        self._slots.give(span.extents)
        self.kept -= span.length
        span.resident = False
        del self._spans[span.number]
        self.retention.withdraw(span.number)
        if span.parent is not None:
            del span.parent.children[span.number]
        if self._on_drop is not None:
            self._on_drop(span)

    def _close(self, admission: Admission) -> None:
        self._check_active(admission)
        self.reserved -= admission.reserved
        admission.active = False
        self._admissions.discard(admission)

    def _check_active(self, admission: Admission) -> None:
        if not admission.active or admission not in self._admissions:
            raise RunError("the admission is finished or cancelled; admit the path again")

    def _check_resident(self, span: Span) -> None:
        if self._spans.get(span.number) is not span:
            raise RunError(f"span {span.number} is not resident; admit its path again")
