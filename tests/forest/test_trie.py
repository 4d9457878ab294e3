"""Tries: exact sizes, paths, order, intervals and flattening, against sets of prefixes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.prompts.forest import Trie, build_trie, ends_last, flatten
from covey.prompts.forest.minima import Minima
from covey.prompts.forest.trie import stream_of
from covey.prompts.tokens import concatenate
from forest.brute import column, minimum_tokens

# Few distinct tokens, some alike in their low bytes, make forks at every depth.
token = st.sampled_from([0, 1, 2, 256, 257, 65536, 2**31 - 1])
runs = st.lists(st.lists(token, max_size=9), min_size=1, max_size=30)


def path_nodes(trie: Trie, node: int) -> list[int]:
    chain = []
    while node >= 0:
        chain.append(node)
        node = int(trie.parent[node])
    return chain[::-1]


def path_tokens(trie: Trie, node: int) -> list[int]:
    flat = trie.column.flat
    return [t for n in path_nodes(trie, node) for t in flat[trie.start[n] : trie.end[n]].tolist()]


def check_structure(trie: Trie, given_runs: list[list[int]], empty: int = 0) -> None:
    """`empty` nodes beside the root have no tokens."""
    count = len(trie)
    node = np.arange(count)
    assert trie.parent[0] == -1
    assert trie.start[0] == trie.end[0] and trie.depth[0] == 0 and trie.subtree_end[0] == count
    assert (trie.parent[1:] < node[1:]).all() and (trie.parent[1:] >= 0).all()
    assert (trie.end >= trie.start).all() and (trie.end[1:] == trie.start[1:]).sum() == empty
    size = trie.end - trie.start
    assert (trie.depth[1:] == (trie.depth + size)[trie.parent[1:]]).all()
    for n in range(count):
        below = [m for m in range(count) if n in path_nodes(trie, m)]
        assert below == list(range(n, trie.subtree_end[n]))
    for row, run in enumerate(given_runs):
        assert path_tokens(trie, int(trie.row_node[row])) == run
    ends = np.bincount(trie.row_node, minlength=count)
    assert trie.prompts.tolist() == ends.tolist()
    assert trie.size == int(size.sum())
    assert trie.requested_tokens == sum(len(run) for run in given_runs)
    leaves = np.setdiff1d(node, trie.parent)
    assert (trie.prompts[leaves] > 0).all() or count == 1


def check_stream(trie: Trie) -> None:
    """Each token sees exactly the tokens before it on its own path."""
    stream = stream_of(trie)
    first = trie.node_first
    for n in range(len(trie)):
        chain = path_nodes(trie, n)
        seen = [t for m in chain for t in range(first[m], first[m + 1])]
        for i in range(first[n], first[n + 1]):
            visible = [k for k in range(i + 1) if i < stream.subtree_end[k]]
            assert visible == [t for t in seen if t <= i]
            assert stream.depth[i] == len(visible) - 1
        assert stream.tokens[seen].tolist() == path_tokens(trie, n)


@given(runs)
def test_trie_is_the_set_of_prefixes(given_runs: list[list[int]]) -> None:
    trie = build_trie(column(given_runs))
    assert trie.size == minimum_tokens(given_runs)
    assert trie.paths == len({tuple(run) for run in given_runs})
    check_structure(trie, given_runs)
    check_stream(trie)


@given(runs)
def test_ends_last_puts_a_run_behind_those_that_go_on_from_it(given_runs: list[list[int]]) -> None:
    plain = build_trie(column(given_runs))
    trie = ends_last(plain)
    inner = int(((plain.prompts > 0) & (plain.subtree_end > np.arange(len(plain)) + 1)).sum())
    check_structure(trie, given_runs, inner)
    assert len(trie) == len(plain) + inner and trie.size == plain.size
    # Nothing lies below the node at which a run ends, and nothing after it beside it.
    ends = np.unique(trie.row_node)
    assert (trie.subtree_end[ends] == ends + 1).all() or len(trie) == 1
    moved = ends[(trie.start[ends] == trie.end[ends]) & (ends > 0)]
    assert (trie.subtree_end[trie.parent[moved]] >= moved + 1).all()
    for node in moved.tolist():
        later = np.arange(node + 1, trie.subtree_end[trie.parent[node]])
        assert all(trie.parent[n] != trie.parent[node] for n in later.tolist())


@given(runs, st.integers(0, 12))
def test_flattening_only_merges(given_runs: list[list[int]], node_tokens: int) -> None:
    trie = build_trie(column(given_runs))
    flat = flatten(trie, node_tokens)
    check_structure(flat, given_runs)
    check_stream(flat)
    assert trie.size == minimum_tokens(given_runs)
    # Each node's end is an end of the exact trie too: nodes are merged, never split.
    assert len(flat) <= len(trie)
    ends = {tuple(path_tokens(trie, n)) for n in range(len(trie))}
    assert {tuple(path_tokens(flat, n)) for n in range(len(flat))} <= ends
    # What is left pays for itself.
    copies = np.bincount(flat.parent[1:], minlength=len(flat)) + (flat.prompts > 0)
    worth = ((flat.end - flat.start) * (copies - 1))[(copies > 1) & (np.arange(len(flat)) > 0)]
    assert (worth > node_tokens).all()
    if node_tokens == 0:
        assert flat.size == trie.size and len(flat) == len(trie)


def test_a_merged_share_is_given_back_to_its_children() -> None:
    trie = build_trie(column([[7, 1, 1, 1], [7, 2, 2, 2], [8], [8, 9, 9]]))
    assert trie.size == 1 + 3 + 3 + 1 + 2
    flat = flatten(trie, 1)
    assert flat.size - trie.size == 2
    assert sorted(np.diff(flat.node_first).tolist()) == [0, 1, 3, 4, 4]
    assert flatten(trie, 0).size == trie.size


def test_a_deep_chain_of_prefixes_flattens_evenly() -> None:
    chain = [[5] * n for n in range(1, 400)]
    trie = build_trie(column(chain))
    assert trie.size == 399 and len(trie) == 400
    flat = flatten(trie, 3)
    on_path = path_nodes(flat, int(flat.row_node[-1]))[1:-1]
    assert {int(flat.end[n] - flat.start[n]) for n in on_path} == {4}


def test_long_shared_openings_cross_the_comparison_window() -> None:
    rng = np.random.default_rng(3)
    base = rng.integers(0, 50_000, 9_000).tolist()
    nested = [base[:n] for n in (1, 8, 9, 64, 65, 4_096, 8_999, 9_000)]
    forked = [[*base[:n], 60_000 + n] for n in (0, 7, 8, 16, 17, 5_000)]
    given_runs = [*nested, *forked, base, []]
    trie = build_trie(column(given_runs))
    assert trie.size == 9_000 + len(forked)
    for row, run in enumerate(given_runs):
        assert path_tokens(trie, int(trie.row_node[row])) == run


@pytest.mark.parametrize(
    ("given_runs", "size", "nodes"),
    [([[]], 0, 1), ([[], []], 0, 1), ([[4]], 1, 2), ([[4], [4], []], 1, 2), ([[4], [5]], 2, 3)],
)
def test_smallest_tries(given_runs: list[list[int]], size: int, nodes: int) -> None:
    trie = build_trie(column(given_runs))
    assert (trie.size, len(trie)) == (size, nodes)
    check_structure(trie, given_runs)


def test_many_runs_against_the_set_of_prefixes() -> None:
    rng = np.random.default_rng(11)
    lengths = rng.integers(0, 12, 70_000)  # more than one block of neighbours
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = rng.geometric(0.4, offsets[-1]).astype(np.int32)
    given_runs = [flat[a:b].tolist() for a, b in pairwise(offsets)]
    trie = build_trie(column(given_runs))
    assert trie.size == minimum_tokens(given_runs)
    for row in rng.integers(0, len(given_runs), 200).tolist():
        assert path_tokens(trie, int(trie.row_node[row])) == given_runs[row]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.data())
def test_minima_answer_like_a_scan(values: list[int], data: st.DataObject) -> None:
    minima, count = Minima(np.array(values)), len(values)
    at = data.draw(st.integers(0, count))
    bound = data.draw(st.integers(0, 11))
    low = np.array([at]), np.array([bound])
    after = [i for i in range(at, count) if values[i] < bound]
    before = [i for i in range(at) if values[i] < bound]
    assert minima.first_below(*low)[0] == (after[0] if after else count)
    assert minima.last_below(*low)[0] == (before[-1] if before else -1)
    stop = data.draw(st.integers(1, count))
    first = data.draw(st.integers(0, stop - 1))
    assert minima.over(np.array([first]), np.array([stop]))[0] == min(values[first:stop])


@given(runs, st.lists(st.integers(0, 29), max_size=12))
def test_concatenated_parts_read_in_order(given_runs: list[list[int]], picked: list[int]) -> None:
    rows = np.array([p % len(given_runs) for p in picked], dtype=np.int64)
    zeros = np.zeros(len(rows), dtype=np.int64)
    documents = column(given_runs)
    prompts = concatenate([(column([[9, 8]]), zeros), (documents, rows), (column([[7]]), zeros)])
    expected = [[9, 8, *given_runs[row], 7] for row in rows.tolist()]
    assert [prompts.run(i).tolist() for i in range(len(prompts))] == expected
