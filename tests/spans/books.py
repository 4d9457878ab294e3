"""The span pool's books, counted again from its spans."""

from __future__ import annotations

from covey.engine.spans import SpanPool


def check_books(pool: SpanPool) -> None:
    """Compare every number that a pool keeps with what its spans and admissions say."""
    spans = list(pool.spans())
    assert pool.held == sum(s.length for s in spans if s.pins)
    assert pool.kept == sum(s.length for s in spans if not s.pins)
    assert pool.reserved == sum(a.reserved for a in pool._admissions)
    assert pool.held + pool.kept + pool.free == pool.capacity
    on_offer = {s.number for s in spans if not s.pins and not s.children}
    assert on_offer == pool.retention._values.keys()
