"""The bound is the optimum: every choice of what to keep, tried out."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from forest.belady import fresh_token_bound


def best_of_all(
    parent: list[int], length: list[int], visits: list[list[int]], capacity: int
) -> int:
    def tokens(nodes: list[int]) -> frozenset[tuple[int, int]]:
        found = set()
        for node in nodes:
            while node >= 0:
                found |= {(node, i) for i in range(length[node])}
                node = parent[node]
        return frozenset(found)

    needed = [tokens(nodes) for nodes in visits]

    @cache
    def cost(at: int, kept: frozenset[tuple[int, int]]) -> int:
        if at == len(needed):
            return 0
        held = kept | needed[at]
        choices = combinations(sorted(held), min(capacity, len(held)))
        return len(needed[at] - kept) + min(cost(at + 1, frozenset(c)) for c in choices)

    return cost(0, frozenset())


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]], int]:
    count = draw(st.integers(1, 4))
    parent = [draw(st.integers(-1, n - 1)) for n in range(count)]
    length = draw(st.lists(st.integers(1, 2), min_size=count, max_size=count))
    node = st.integers(0, count - 1)
    visits = draw(st.lists(st.lists(node, min_size=1, max_size=2), max_size=5))
    return parent, length, visits, draw(st.integers(0, 4))


@examples(60)
@given(plans())
def test_no_choice_computes_fewer_tokens(
    plan: tuple[list[int], list[int], list[list[int]], int],
) -> None:
    assert fresh_token_bound(*plan) == best_of_all(*plan)


def test_what_comes_back_soonest_is_kept() -> None:
    parent, length = [-1, -1, -1], [5, 5, 5]
    order = [[0], [1], [2], [0], [1]]
    assert fresh_token_bound(parent, length, order, 15) == 15
    assert fresh_token_bound(parent, length, order, 5) == 15 + 5
    assert fresh_token_bound(parent, length, order, 7) == 15 + 3
    assert fresh_token_bound(parent, length, order, 0) == 25
