"""Forests and packing: every prompt, once, visible to itself alone, wherever it is cut."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import InputError
from covey.prompts.forest import (
    Forest,
    above,
    ask_all,
    ask_pairs,
    build_trie,
    flatten,
    pack,
)
from effort import examples
from forest.brute import column, cut, forest_minimum

token = st.integers(0, 2)
document = st.lists(token, max_size=6)
suffix = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@dataclass
class Case:
    """A forest with the rows that were asked, as plain lists."""

    documents: list[list[int]]
    suffixes: list[list[int]]
    pairs: list[tuple[int, int]]
    forest: Forest

    def prompt_numbers(self) -> np.ndarray:
        rows = np.array(self.pairs, dtype=np.int64)
        return self.forest.prompt_of(rows[:, 0], rows[:, 1])


@st.composite
def cases(draw: st.DrawFn, node_tokens: int = 0) -> Case:
    documents = draw(st.lists(document, min_size=1, max_size=8))
    suffixes = draw(st.lists(suffix, min_size=1, max_size=8))
    tries = build_trie(column(documents)), build_trie(column(suffixes))
    tries = flatten(tries[0], node_tokens), flatten(tries[1], node_tokens)
    every = [(d, s) for d in range(len(documents)) for s in range(len(suffixes))]
    if draw(st.booleans()):
        asked = draw(st.lists(st.sampled_from(range(len(documents))), min_size=1, max_size=8))
        pairs = [(d, s) for d in asked for s in range(len(suffixes))]
        return Case(documents, suffixes, pairs, ask_all(*tries, np.array(asked)))
    pairs = draw(st.lists(st.sampled_from(every), min_size=1, max_size=25))
    rows = np.array(pairs, dtype=np.int64)
    return Case(documents, suffixes, pairs, ask_pairs(*tries, rows[:, 0], rows[:, 1]))


@dataclass
class Machine:
    """Reads batches as an engine would, with token lists for keys and values.

    A packed token's "value" is the list of tokens it sees, itself last. If the arrays
    are right that is the prompt up to it, and at an answer the whole prompt.
    """

    forest: Forest
    nodes: dict[int, list[int]] = field(default_factory=dict)
    answers: dict[int, list[int]] = field(default_factory=dict)
    tokens: int = 0

    def run(self, begin: np.ndarray, end: np.ndarray) -> None:
        packed, context = pack(self.forest, begin, end), above(self.forest, begin, end)
        values: list[list[int]] = []
        for piece in range(len(begin)):
            outside = self._outside(context, piece)
            low, high = packed.offsets[piece : piece + 2].tolist()
            for i in range(low, high):
                seen = [t for tokens, stop in outside if i < stop for t in tokens]
                seen += [
                    int(packed.tokens[k]) for k in range(low, i + 1) if i < packed.subtree_ends[k]
                ]
                assert packed.positions[i] == len(seen) - 1
                assert i < packed.subtree_ends[i] <= high
                values.append(seen)
            self._remember(packed.tokens[low:high].tolist(), int(begin[piece]))
        for at, prompt in zip(packed.logits_indices.tolist(), packed.prompts.tolist(), strict=True):
            assert prompt not in self.answers
            self.answers[prompt] = values[at]
        self.tokens += len(packed.tokens)

    def _outside(self, context, piece: int) -> list[tuple[list[int], int]]:
        outside = []
        for j in range(*context.offsets[piece : piece + 2].tolist()):
            resident = self.nodes[int(context.nodes[j])]
            assert len(resident) >= context.tokens[j]
            outside.append((resident[: int(context.tokens[j])], int(context.subtree_ends[j])))
        stops = context.suffix_subtree_ends[slice(*context.suffix_offsets[piece : piece + 2])]
        if len(stops):
            trie = self.forest.suffixes
            run = trie.column.run(int(trie.rows[context.suffix_path[piece]])).tolist()
            outside += [([t], int(stop)) for t, stop in zip(run, stops, strict=False)]
        return outside

    def _remember(self, tokens: list[int], begin: int) -> None:
        """Keep what lies in document nodes, as a KV cache would."""
        nodes = np.arange(len(self.forest.documents))
        for node, low, high in zip(nodes, *self.forest.document_ranges(nodes), strict=True):
            inside = slice(max(low - begin, 0), max(high - begin, 0))
            if tokens[inside]:
                resident = self.nodes.setdefault(int(node), [])
                assert len(resident) == max(begin - low, 0)
                resident.extend(tokens[inside])


def check_answers(case: Case, machine: Machine) -> None:
    assert len(machine.answers) == case.forest.prompts
    for (d, s), number in zip(case.pairs, case.prompt_numbers().tolist(), strict=True):
        assert machine.answers[number] == case.documents[d] + case.suffixes[s]


@examples(200)
@given(cases(), st.integers(1, 12), st.data())
def test_every_prompt_is_read_once_however_the_stream_is_cut(
    case: Case, budget: int, data: st.DataObject
) -> None:
    forest = case.forest
    filled = data.draw(st.integers(0, budget - 1))
    machine = Machine(forest)
    for begin, end in cut(forest.size, budget, filled):
        machine.run(begin, end)
    check_answers(case, machine)
    pairs = [(case.documents[d], case.suffixes[s]) for d, s in case.pairs]
    assert machine.tokens == forest.size == forest_minimum(pairs)
    assert forest.requested_tokens == sum(len(d) + len(s) for d, s in pairs)


@given(cases(node_tokens=3), st.integers(1, 9))
def test_a_flattened_forest_reads_the_same_prompts(case: Case, budget: int) -> None:
    machine = Machine(case.forest)
    for begin, end in cut(case.forest.size, budget):
        machine.run(begin, end)
    check_answers(case, machine)


@given(cases(), st.data())
def test_instances_run_in_any_order_behind_resident_documents(
    case: Case, data: st.DataObject
) -> None:
    forest, machine = case.forest, Machine(case.forest)
    begin, end = forest.document_ranges(np.arange(len(forest.documents)))
    needed = np.flatnonzero(end > begin)
    if len(needed):
        machine.run(begin[needed], end[needed])
    order = np.array(data.draw(st.permutations(range(len(forest.hosts)))))
    begin = forest.document_ranges(forest.hosts[order])[1]
    end = begin + forest.widths[order]
    half = len(order) // 2
    for part in (slice(0, half), slice(half, None)):
        machine.run(begin[part], end[part])
    check_answers(case, machine)


@given(cases(), st.integers(1, 9))
def test_open_tokens_are_those_seen_after_their_piece(case: Case, budget: int) -> None:
    forest = case.forest
    begin, end = np.concatenate(cut(forest.size, budget), axis=1)
    whole = pack(forest, np.array([0]), np.array([forest.size]))
    packed = pack(forest, begin, end)
    stop = np.repeat(end, end - begin)
    assert packed.open.tolist() == np.flatnonzero(whole.subtree_ends > stop).tolist()
    assert packed.subtree_ends.tolist() == np.minimum(whole.subtree_ends, stop).tolist()
    assert packed.tokens.tolist() == whole.tokens.tolist()


def test_five_million_pairs_are_two_tries_and_their_hosts() -> None:
    documents = build_trie(column([[1, n] for n in range(2500)]))
    suffixes = build_trie(column([[3, 4, n, 5] for n in range(2000)]))
    forest = ask_all(documents, suffixes)
    assert forest.prompts == 5_000_000
    assert forest.size == 1 + 2500 + 2500 * (2 + 2 * 2000)
    assert forest.requested_tokens == 5_000_000 * 6
    place = forest.document_ranges(forest.hosts[[1234]])[1]
    packed = pack(forest, place, place + 10)
    assert packed.tokens[:4].tolist() == [3, 4, 0, 5]
    assert packed.prompts.tolist() == [1234 * 2000 + i for i in range(4)]


def test_documents_nobody_asks_about_are_not_in_the_stream() -> None:
    documents = build_trie(column([[1, 2, 3], [1, 2, 4], [1, 9]]))
    suffixes = build_trie(column([[7]]))
    forest = ask_all(documents, suffixes, np.array([1]))
    assert forest.size == 3 + 1
    assert pack(forest, np.array([0]), np.array([4])).tokens.tolist() == [1, 2, 4, 7]


def test_a_suffix_without_tokens_is_refused() -> None:
    tries = build_trie(column([[1]])), build_trie(column([[2], []]))
    with pytest.raises(InputError, match="suffix row 1 has no tokens"):
        ask_all(*tries)
    with pytest.raises(InputError, match="suffix row 1 has no tokens"):
        ask_pairs(*tries, np.array([0]), np.array([0]))


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (2, 1), (-1, 2), (0, 99)])
def test_ranges_outside_the_stream_are_refused(begin: int, end: int) -> None:
    forest = ask_all(build_trie(column([[1]])), build_trie(column([[2]])))
    with pytest.raises(InputError, match="piece 0 is"):
        pack(forest, np.array([begin]), np.array([end]))
    with pytest.raises(InputError, match="piece 0 is"):
        above(forest, np.array([begin]), np.array([end]))
