"""The radix tree under random sessions, and against Belady's bound."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from covey.arrays import Int32
from covey.engine.kv_cache.eviction import RecomputeCost
from covey.engine.kv_cache.node import PrefixSegment, RadixNode, Segment
from covey.engine.kv_cache.radix_tree import SHARED_PREFIX_READS, RadixTree
from covey.errors import InputError, RunError
from effort import examples, scaled
from forest.belady import fresh_token_bound
from kv_cache.books import check_books, nodes_of

COST = RecomputeCost(token_seconds=1.0, pair_seconds=0.001)


def ids(*tokens: int) -> Int32:
    return np.array(tokens, dtype=np.int32)


def new_tree(capacity: int, preamble: Int32 | None = None, key_tokens: int = 1) -> RadixTree:
    return RadixTree(capacity, COST, ids() if preamble is None else preamble, key_tokens)


def grow(
    tree: RadixTree,
    parent: RadixNode,
    tokens: Int32,
    *,
    reads: float = 0.0,
    document: int = 0,
    unfinished: bool = False,
) -> RadixNode:
    """Insert and fill a node, planned for, and unlock it."""
    node = tree.insert(parent, tokens, unfinished=unfinished)
    assert node is not None
    tree.fill(node, len(tokens))
    if reads:
        tree.expect(document, node, reads)
    tree.unlock(node)
    return node


def text_of(node: RadixNode) -> list[int]:
    """The tokens from the root to a node's end."""
    above = [] if node.parent is None else text_of(node.parent)
    return above + node.tokens.tolist()


def slots_of(segments: tuple[Segment, ...]) -> list[int]:
    return [slot for start, length in segments for slot in range(start, start + length)]


class TreeMachine(RuleBasedStateMachine):
    """Any order of calls that the contract allows, checked after each one.

    `written` is the model: which prefix was last computed into each slot. Whatever the tree
    says is resident must be there, and `match` must find the longest of it.
    """

    @initialize(
        capacity=st.integers(1, 24),
        preamble=st.integers(0, 3),
        key_tokens=st.sampled_from([1, 1, 3]),
    )
    def start(self, capacity: int, preamble: int, key_tokens: int) -> None:
        self.tree = new_tree(capacity, ids(*range(7, 7 + min(preamble, capacity))), key_tokens)
        self.written: dict[int, list[int]] = {}
        self.locks: list[RadixNode] = []
        self.filling: list[RadixNode] = []
        self.reserved: list[tuple[RadixNode, tuple[Segment, ...]]] = []
        self.fill(self.tree.root, self.tree.root.length)

    def pick(self, number: int) -> RadixNode:
        nodes = [self.tree.root, *nodes_of(self.tree)]
        return nodes[number % len(nodes)]

    def fill(self, node: RadixNode, count: int) -> None:
        text, first = text_of(node), node.start + node.filled
        found = self.tree.fill(node, count)
        assert [s.position for s in found] == [
            first + sum(s.length for s in found[:i]) for i in range(len(found))
        ]
        for position, slot, length in found:
            for i in range(length):
                self.written[slot + i] = text[: position + i + 1]

    def known(self, tokens: list[int]) -> int:
        """How many of the tokens behind the preamble are computed, by the nodes."""
        best = 0
        for node in nodes_of(self.tree):
            text = text_of(node)[self.tree.root.length :]
            above = len(text) - node.length
            shared = next((i for i, (a, b) in enumerate(zip(text, tokens, strict=False)) if a != b),
                          min(len(text), len(tokens)))  # fmt: skip
            if shared > above and node.filled == node.length and self.reachable(node):
                best = max(best, shared)
        return best

    def reachable(self, node: RadixNode) -> bool:
        return node.parent is None or (
            node.parent.filled == node.parent.length and self.reachable(node.parent)
        )

    @rule(
        tokens=st.lists(st.integers(0, 2), min_size=1, max_size=9),
        unfinished=st.booleans(),
        filled=st.sampled_from([True, True, False]),
        document=st.none() | st.integers(0, 3),
    )
    def insert(
        self, tokens: list[int], unfinished: bool, filled: bool, document: int | None
    ) -> None:
        """As a batch does: match, insert, fill, and, of a document, plan for it and unlock."""
        tree, wanted = self.tree, ids(*tokens)
        known = self.known(tokens)
        before = {node: (text_of(node), slots_of(node.segments)) for node in nodes_of(tree)}
        above, found = tree.match(tree.root, wanted)
        assert found == known or (tree._key_tokens > 1 and found < known)
        assert text_of(above)[tree.root.length :] == tokens[:found]
        for node, (text, slots) in before.items():  # a split moves nothing
            assert text_of(node) == text and slots[-node.length :] == slots_of(node.segments)
        if found == len(tokens):
            tree.lock(above)
            node: RadixNode | None = above
        elif tree._key(wanted[found:]) in above.children:
            with pytest.raises(RunError, match="added twice"):
                tree.insert(above, wanted[found:], unfinished=unfinished)
            return
        else:
            node = self.insert_below(above, wanted[found:], unfinished)
        if node is None:
            return
        if not filled and node.filled < node.length:
            self.filling.append(node)
        else:
            self.fill(node, node.length - node.filled)
            if document is not None:
                tree.expect(document, node, 0.5)
                tree.unlock(node)
                return
        self.locks.append(node)

    def insert_below(self, above: RadixNode, tokens: Int32, unfinished: bool) -> RadixNode | None:
        tree = self.tree
        if above.end + len(tokens) > tree.capacity:
            state = (tree.locked, tree.free)
            with pytest.raises(RunError, match="KV slots"):
                tree.insert(above, tokens, unfinished=unfinished)
            assert state == (tree.locked, tree.free)
            return None
        node = tree.insert(above, tokens, unfinished=unfinished)
        if node is None:
            assert self.locks or self.reserved, "refused though nothing else was locked"
        elif len(node.segments) > 1:
            assert len(nodes_of(tree)) > 1 or self.reserved or tree.root.length, (
                "nothing stood in the way"
            )
        return node

    @precondition(lambda self: self.filling)
    @rule(number=st.integers(0, 99), count=st.integers(1, 9))
    def fill_further(self, number: int, count: int) -> None:
        node = self.filling[number % len(self.filling)]
        self.fill(node, min(count, node.length - node.filled))
        if node.filled == node.length:
            self.filling.remove(node)

    @rule(number=st.integers(0, 99))
    def lock(self, number: int) -> None:
        node = self.pick(number)
        self.tree.lock(node)
        self.locks.append(node)

    @rule(number=st.integers(0, 99))
    def unlock(self, number: int) -> None:
        # What is not filled yet stays locked, as long as a visit does.
        locks = [node for node in self.locks if node not in self.filling]
        if locks:
            node = locks[number % len(locks)]
            self.locks.remove(node)
            self.tree.unlock(node)

    @rule(number=st.integers(0, 99), count=st.integers(1, 9))
    def reserve(self, number: int, count: int) -> None:
        node = self.pick(number)
        if node.end + count > self.tree.capacity:
            with pytest.raises(RunError, match="KV slots"):
                self.tree.reserve(node, count)
            return
        segments = self.tree.reserve(node, count)
        if segments is None:
            assert self.locks or self.reserved, "refused though nothing else was locked"
            return
        assert sum(length for _, length in segments) == count
        for slot in slots_of(segments):
            self.written[slot] = []
        self.reserved.append((node, segments))

    @precondition(lambda self: self.reserved)
    @rule(number=st.integers(0, 99))
    def give_back(self, number: int) -> None:
        self.tree.give_back(*self.reserved.pop(number % len(self.reserved)))

    @rule(number=st.integers(0, 99), document=st.integers(0, 3), reads=st.sampled_from([0, 0.3, 1]))
    def expect(self, number: int, document: int, reads: float) -> None:
        self.tree.expect(document, self.pick(number), reads)

    @rule(document=st.integers(0, 3), reads=st.sampled_from([0, 0.5, 2]))
    def expect_again(self, document: int, reads: float) -> None:
        kept = self.tree.keeps(document)
        self.tree.expect(document, None, reads)
        assert self.tree.keeps(document) == (kept and reads > 0)

    @rule(number=st.integers(0, 99))
    def finish(self, number: int) -> None:
        node = self.pick(number)
        was, reads = node.unfinished, node.reads
        self.tree.finish(node)
        if was:
            assert not node.unfinished and node.reads == max(reads, SHARED_PREFIX_READS)

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "tree"):
            return
        tree = self.tree
        check_books(tree, sum(length for _, own in self.reserved for _, length in own))
        # What is referenced is what was locked, with all above.
        references = Counter([tree.root, *self.locks, *(node for node, _ in self.reserved)])
        for node in [tree.root, *nodes_of(tree)][::-1]:
            held = sum(child.references > 0 for child in node.children.values())
            assert node.references == references.pop(node, 0) + held
        assert not references, "a locked node is gone"
        reserved = {slot for _, own in self.reserved for slot in slots_of(own)}
        for node in [tree.root, *nodes_of(tree)]:
            slots, text = slots_of(node.segments), text_of(node)
            assert not reserved & set(slots)
            # What is said to be computed is there.
            for place, slot in enumerate(slots[: node.filled]):
                assert self.written[slot] == text[: node.start + place + 1]
            position = 0
            for segment in node.prefix_segments():
                assert segment.position == position
                position += segment.length
            assert position == node.end


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=scaled(60), stateful_step_count=40)


def test_ancestors_that_stayed_for_a_child_go_with_it() -> None:
    tree = new_tree(10)
    top = tree.insert(tree.root, ids(1, 2), unfinished=False)
    assert top is not None
    tree.fill(top, 2)
    child = grow(tree, top, ids(3, 4, 5), reads=0.5)
    tree.unlock(top)
    assert top.resident and child.resident
    tree.expect(0, None, 0.0)
    assert not top.resident and not child.resident and tree.free == 10


def test_a_node_lives_until_the_prompts_below_it_are_packed() -> None:
    tree = new_tree(10)
    node = grow(tree, tree.root, ids(1, 1, 1, 1), unfinished=True)
    assert (tree.locked, tree.free) == (0, 6)
    for number in (2, 3):
        assert not grow(tree, node, ids(number)).resident
        assert node.resident
    tree.finish(node)
    assert node.resident and node.reads == SHARED_PREFIX_READS, "a document may begin with it"
    grow(tree, tree.root, ids(*range(10, 17)))
    assert not node.resident and tree.free == 10


def test_the_least_saved_seconds_a_slot_goes_first() -> None:
    tree = new_tree(12)
    plans = {"likely": 0.9, "rare": 0.1, "sure": 1.0}
    nodes = {
        key: grow(tree, tree.root, ids(*[n] * 4), reads=reads, document=n)
        for n, (key, reads) in enumerate(plans.items())
    }
    grow(tree, tree.root, ids(9, 9, 9))
    assert [key for key, node in nodes.items() if not node.resident] == ["rare"]
    assert tree.evictions == 1 and not tree.keeps(1) and tree.documents == 2


def test_an_evicted_node_leaves_its_plan_to_the_one_above() -> None:
    tree = new_tree(8)
    top = tree.insert(tree.root, ids(1, 1, 1), unfinished=False)
    assert top is not None
    tree.fill(top, 3)
    child = grow(tree, top, ids(2, 2, 2, 2), reads=0.25, unfinished=True)
    tree.unlock(top)
    grow(tree, tree.root, ids(3, 3))
    assert not child.resident and top.resident
    assert (top.unfinished, top.reads) == (True, 0.25)


def test_neighbours_go_to_make_one_segment() -> None:
    tree = new_tree(12)
    nodes = [grow(tree, tree.root, ids(n, n), reads=0.5 + n / 20, document=n) for n in range(6)]
    for document in (1, 3, 5):
        tree.expect(document, None, 0.0)
    long = grow(tree, tree.root, ids(*[9] * 6), reads=1.0, document=9)
    assert len(long.segments) == 1
    assert [node.resident for node in nodes] == [True, False, True, False, False, False]


def test_a_long_node_has_several_segments_where_locked_nodes_stand_in_the_way() -> None:
    tree = new_tree(12)
    nodes = [grow(tree, tree.root, ids(n, n), reads=1.0, document=n) for n in range(6)]
    for node in nodes[1::2]:
        tree.lock(node)
    long = grow(tree, tree.root, ids(*[9] * 6), reads=1.0, document=9)
    assert len(long.segments) == 3 and tree.locked == 6
    assert [s.position for s in long.prefix_segments()] == [0, 2, 4]


def test_two_prompts_share_a_node_and_neither_frees_it_alone() -> None:
    tree = new_tree(10)
    shared = tree.insert(tree.root, ids(1, 1, 1, 1), unfinished=False)
    assert shared is not None
    tree.fill(shared, 4)
    second = tree.insert(shared, ids(2, 2), unfinished=False)
    assert second is not None
    tree.unlock(shared)
    assert shared.resident and tree.locked == 6
    tree.unlock(second)
    assert tree.free == 10
    with pytest.raises(RunError, match="unlocked more often"):
        tree.unlock(second)


def test_a_node_is_split_where_another_prompt_leaves_it() -> None:
    tree = new_tree(10)
    node = grow(tree, tree.root, ids(1, 2, 3, 4, 5), reads=1.0)
    before = slots_of(node.segments)
    upper, known = tree.match(tree.root, ids(1, 2, 3, 9))
    assert known == 3 and upper is node.parent and upper.documents == set()
    assert slots_of(upper.segments) + slots_of(node.segments) == before
    assert (upper.tokens.tolist(), node.tokens.tolist()) == ([1, 2, 3], [4, 5])
    assert upper.prefix_segments() == [PrefixSegment(0, before[0], 3)]
    other = grow(tree, upper, ids(9), reads=0.5, document=1)
    assert tree.match(tree.root, ids(1, 2, 3, 9)) == (other, 4)
    assert tree.match(tree.root, ids(1, 2, 3, 4, 5, 6)) == (node, 5)


def test_a_node_that_is_locked_twice_can_be_split_and_is_freed_in_the_end() -> None:
    tree = new_tree(10)
    node = grow(tree, tree.root, ids(1, 2, 3), reads=1.0)
    tree.lock(node)
    tree.lock(node)
    upper, _ = tree.match(tree.root, ids(1, 9))
    assert (upper.references, node.references, tree.locked) == (1, 2, 3)
    tree.unlock(node)
    tree.unlock(node)
    tree.expect(0, None, 0.0)
    assert tree.free == 10 and not upper.resident


def test_all_nodes_of_a_document_go_with_it() -> None:
    tree = new_tree(10)
    top = grow(tree, tree.root, ids(1, 2), reads=1.0)
    grow(tree, grow(tree, top, ids(3), reads=1.0), ids(4), reads=1.0)
    assert tree.free == 6
    tree.expect(0, None, 0.0)
    assert tree.free == 10 and tree.documents == 0


def test_what_is_not_filled_is_not_found() -> None:
    tree = new_tree(10)
    node = tree.insert(tree.root, ids(1, 2, 3), unfinished=False)
    assert node is not None
    tree.fill(node, 2)
    assert tree.match(tree.root, ids(1, 2, 3)) == (tree.root, 0)
    tree.fill(node, 1)
    assert tree.match(tree.root, ids(1, 2, 3)) == (node, 3)


def test_shares_shorter_than_a_key_are_not_looked_for() -> None:
    tree = new_tree(20, key_tokens=3)
    short = grow(tree, tree.root, ids(1, 2), reads=1.0)
    grow(tree, tree.root, ids(5, 6, 7, 8), reads=1.0, document=1)
    assert tree.match(tree.root, ids(5, 6, 9)) == (tree.root, 0)
    assert tree.match(tree.root, ids(5, 6, 7, 9))[1] == 3
    assert tree.match(tree.root, ids(1, 2, 9)) == (short, 2), "a whole node is found"


def test_keeping_pays_while_there_is_room_or_something_worth_less() -> None:
    tree = new_tree(8)
    assert tree.is_worth_keeping(0, 8, 0.1)
    grow(tree, tree.root, ids(*[1] * 6), reads=0.5)
    assert tree.is_worth_keeping(0, 2, 0.1)
    assert tree.is_worth_keeping(0, 6, 0.6) and not tree.is_worth_keeping(0, 6, 0.4)


def test_what_cannot_ever_fit_is_refused_and_what_cannot_fit_now_waits() -> None:
    tree = new_tree(10)
    with pytest.raises(RunError, match="a prompt of 11 tokens needs as many KV slots"):
        tree.insert(tree.root, ids(*range(11)), unfinished=False)
    node = grow(tree, tree.root, ids(*[1] * 6), reads=1.0)
    with pytest.raises(RunError, match="needs as many KV slots"):
        tree.insert(node, ids(*range(5)), unfinished=False)
    assert (tree.locked, tree.free) == (0, 4)
    running = tree.insert(tree.root, ids(*[2] * 6), unfinished=False)
    assert running is not None
    assert tree.insert(tree.root, ids(*[3] * 5), unfinished=False) is None
    assert tree.reserve(tree.root, 5) is None
    segments = tree.reserve(tree.root, 4)
    assert segments is not None
    tree.unlock(running)
    assert tree.insert(tree.root, ids(*[3] * 6), unfinished=False) is not None
    tree.give_back(tree.root, segments)
    assert tree.locked == 6


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="at least one slot"):
        new_tree(0)
    with pytest.raises(RunError, match="needs as many KV slots"):
        new_tree(2, ids(1, 2, 3))
    tree = new_tree(4)
    with pytest.raises(InputError, match="must be 0 or more"):
        tree.expect(0, None, -0.5)
    node = grow(tree, tree.root, ids(1, 1))
    assert not node.resident
    for use in (tree.lock, lambda gone: tree.insert(gone, ids(2), unfinished=False)):
        with pytest.raises(RunError, match="evicted"):
            use(node)
    tree.expect(0, node, 1.0)
    assert not tree.keeps(0) and tree.free == 4


def run_visits(tree: RadixTree, parent: list[int], length: list[int], visits: list[int]) -> int:
    """Visit nodes one by one, keeping what comes back; return the tokens computed."""
    left = Counter[int]()
    for node, times in Counter(visits).items():
        for n in chain(parent, node):
            left[n] += times
    fresh = 0
    for node in visits:
        path = chain(parent, node)[::-1]
        left.subtract(path)
        at, locked = tree.root, []
        for n in path:
            tokens = ids(*range(100 * n, 100 * n + length[n]))
            at, known = tree.match(at, tokens)
            if not known:
                inserted = tree.insert(at, tokens, unfinished=False)
                assert inserted is not None
                at = inserted
                tree.fill(at, length[n])
                fresh += length[n]
            else:
                assert known == length[n]
                tree.lock(at)
            locked.append(at)
            tree.expect(n, at, float(left[n] > 0))
        for each in locked:
            tree.unlock(each)
        check_books(tree)
    assert tree.free == tree.capacity
    return fresh


@examples(60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 30))
def test_fresh_tokens_lie_between_beladys_bound_and_the_minimum(
    seed: int, count: int, spare: int
) -> None:
    rng = random.Random(seed)
    parent = [rng.randrange(-1, n) if n else -1 for n in range(count)]
    length = [rng.randint(1, 6) for _ in range(count)]
    visits = [rng.randrange(count) for _ in range(rng.randint(1, 25))]
    depth: list[int] = []
    for n in range(count):
        depth.append((depth[parent[n]] if parent[n] >= 0 else 0) + length[n])
    tree = new_tree(max(depth) + spare)
    fresh = run_visits(tree, parent, length, visits)
    bound = fresh_token_bound(parent, length, [[v] for v in visits], tree.capacity)
    minimum = sum(length[n] for n in {n for v in visits for n in chain(parent, v)})
    assert minimum <= bound <= fresh
    if tree.capacity >= sum(length):
        assert fresh == minimum and tree.evictions == 0


def chain(parent: list[int], node: int) -> list[int]:
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parent[node]
    return nodes


def test_peak_is_the_most_ever_resident() -> None:
    tree = new_tree(20)
    grow(tree, grow(tree, tree.root, ids(*[1] * 5), reads=1.0), ids(*[2] * 6))
    tree.expect(0, None, 0.0)
    grow(tree, tree.root, ids(*[3] * 7))
    assert tree.peak == 11 and tree.free == 20
