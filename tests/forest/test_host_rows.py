"""The documents of hosts, also where one is the beginning of another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.arrays import Int64
from covey.prompts.forest import ask_all, build_trie, ends_last
from covey.prompts.tokens import Tokens


def column(runs: list[list[int]]) -> Tokens:
    offsets: Int64 = np.cumsum([0, *map(len, runs)], dtype=np.int64)
    return Tokens(np.array([i for run in runs for i in run], dtype=np.int32), offsets)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=12))
def test_a_hosts_row_is_one_that_ends_there(runs: list[list[int]]) -> None:
    exact = build_trie(column(runs))
    for trie in (exact, ends_last(exact)):
        forest = ask_all(trie, build_trie(column([[7], [8]])))
        assert forest.documents.row_node[forest.host_rows].tolist() == forest.hosts.tolist()
