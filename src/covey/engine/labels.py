"""The labels of a classification as a tree of tokens, and what their scores are.

**Score.** The model would write a label's tokens behind the prompt. Where several labels go
on differently after the same tokens, they *part*: there the choice is a softmax over the
tokens that some label has next, and over the *end* where a label ends there. A label's
log-probability is the sum of the log-softmax of its choices on its way through the tree;
where nothing parts there is nothing to choose and nothing is added. So the probabilities of
all labels sum to 1, a long label pays for no token that the labels do not differ in, and
only the rows of the output head that belong to a choice are ever multiplied. The best label
is the one of the largest log-probability, the earlier of two equal ones.

    shipping                  " shipping"──────────────▶ shipping
    refund             root ─┤                ┌─ end ──▶ refund
    refund request            " refund" ── node ┤
    refund status                             ├─ " request" ─▶ refund request
                                              └─ " status" ──▶ refund status

The end is the token of a line break, which no label holds.

A *node* is a place where labels part. The state of the model at a node is that of one
prompt, whose last tokens are those that lead to the node: `trie` reads all nodes at once,
as further leaves of the prompt forest behind the cue; `stepwise` reads the first node and
then, always of the open branch that may still hold the best label, one node at a time. A
branch's log-probability bounds those of all labels in it, so that what it finds is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from covey.arrays import Float64, Int32, Int64, offsets_of, ranges
from covey.errors import InputError


@dataclass(frozen=True)
class LabelTree:
    """Where labels part. Node 0 is the first; parents stand before children.

    An *option* is something a node may choose; those of a node are neighbours, and all
    options together, node after node, are one row of logits.

    Attributes:
        labels: how many there are.
        paths: (k,) the tokens from the cue to each node.
        offsets: (k + 1,) int64, a node's options are offsets[i]:offsets[i + 1].
        tokens: (options,) int64, ids in the vocabulary.
        targets: (options,) int64, the node an option leads to, or -1 - label.
        depth: (k,) int64, nodes above each.
    """

    labels: int
    paths: tuple[Int32, ...]
    offsets: Int64
    tokens: Int64
    targets: Int64
    depth: Int64

    @property
    def nodes(self) -> int:
        """Places where labels part."""
        return len(self.paths)

    @property
    def path_tokens(self) -> int:
        """Tokens of the tree down to its last nodes: what `trie` computes for a prompt."""
        seen = {tuple(path[: i + 1].tolist()) for path in self.paths for i in range(len(path))}
        return len(seen)

    def share(self) -> Float64:
        """(k,): the share of all labels that is below each node."""
        found = np.zeros(self.nodes)
        for node in range(self.nodes - 1, -1, -1):
            targets = self.targets[self.offsets[node] : self.offsets[node + 1]]
            found[node] = found[targets[targets >= 0]].sum() + (targets < 0).sum()
        return found / self.labels

    def ways(self, sizes: Float64) -> tuple[Float64, Float64]:
        """(labels,) each: the nodes below the first on the way to a label, and their sizes.

        Args:
            sizes: (k,) of each node, 0 of the first.
        """
        total = np.zeros(self.nodes)
        nodes, found = np.empty((2, self.labels))
        for node in range(self.nodes):
            total[node] += sizes[node]
            for target in self.targets[self.offsets[node] : self.offsets[node + 1]].tolist():
                if target >= 0:
                    total[target] = total[node]
                else:
                    nodes[-1 - target], found[-1 - target] = self.depth[node], total[node]
        return nodes, found

    def below(self, labels: Float64) -> Float64:
        """(k,): the largest of some numbers, one a label, over the labels below each node."""
        found = np.full(self.nodes, -np.inf)
        for node in range(self.nodes - 1, -1, -1):
            targets = self.targets[self.offsets[node] : self.offsets[node + 1]]
            for target in targets.tolist():
                value = labels[-1 - target] if target < 0 else found[target]
                found[node] = max(found[node], value)
        return found

    def log_probabilities(self, logits: Float64) -> Float64:
        """Every label's score.

        Args:
            logits: (n, options).

        Returns:
            (n, labels) float64.
        """
        chosen = log_softmax(logits, self.offsets)
        above = np.zeros((len(logits), self.nodes))
        found = np.empty((len(logits), self.labels))
        node_of = np.repeat(np.arange(self.nodes), np.diff(self.offsets))
        level = self.depth[node_of]
        for depth in range(int(self.depth.max()) + 1):
            options = np.flatnonzero(level == depth)
            scores = above[:, node_of[options]] + chosen[:, options]
            targets = self.targets[options]
            inner = targets >= 0
            above[:, targets[inner]] = scores[:, inner]
            found[:, -1 - targets[~inner]] = scores[:, ~inner]
        return found


def log_softmax(logits: Float64, offsets: Int64) -> Float64:
    """Log-softmax of each row within groups of columns, offsets[i]:offsets[i + 1]."""
    sizes = np.diff(offsets)
    top = np.maximum.reduceat(logits, offsets[:-1], axis=1)
    shifted = logits - np.repeat(top, sizes, axis=1)
    total = np.log(np.add.reduceat(np.exp(shifted), offsets[:-1], axis=1))
    found: Float64 = shifted - np.repeat(total, sizes, axis=1)
    return found


def build_tree(runs: Sequence[Sequence[int]], end: int, names: Sequence[str]) -> LabelTree:
    """The tree of some labels.

    Args:
        runs: the tokens of each, two labels at least, none empty.
        end: the token that stands for the end of a label.
        names: what messages call them.

    Raises:
        InputError: two labels have the same tokens, or one holds the end token.
    """
    seen: dict[tuple[int, ...], str] = {}
    for run, name in zip(runs, names, strict=True):
        if end in run:
            raise InputError(f"the label {name!r} holds a line break; write it on one line")
        if tuple(run) in seen:
            raise InputError(
                f"the labels {seen[tuple(run)]!r} and {name!r} are the same to the model, whose "
                "tokenizer gives them equal tokens; leave one of them out"
            )
        seen[tuple(run)] = name
    growing = _Growing([[*run, end] for run in runs])
    growing.grow()
    sizes = np.array([len(tokens) for tokens in growing.tokens])
    return LabelTree(
        len(runs),
        tuple(np.array(path, dtype=np.int32) for path in growing.paths),
        offsets_of(sizes),
        np.array([t for tokens in growing.tokens for t in tokens], dtype=np.int64),
        np.array([t for targets in growing.targets for t in targets], dtype=np.int64),
        np.array(growing.depth, dtype=np.int64),
    )


@dataclass
class _Growing:
    """A tree being built from runs that all end with the end token."""

    runs: list[list[int]]
    paths: list[list[int]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)

    def grow(self) -> None:
        """Nodes in breadth-first order, so that parents stand before children."""
        # Labels below a node, tokens that they share at least, and the option above it.
        whole = list(range(len(self.runs)))
        waiting: list[tuple[list[int], int, tuple[int, int] | None]] = [(whole, 0, None)]
        for labels, shared, above in waiting:
            first = self.runs[labels[0]]
            while all(self.runs[i][shared] == first[shared] for i in labels):
                shared += 1
            number = len(self.paths)
            self.paths.append(first[:shared])
            self.depth.append(0 if above is None else self.depth[above[0]] + 1)
            if above is not None:
                self.targets[above[0]][above[1]] = number
            groups: dict[int, list[int]] = {}
            for i in labels:
                groups.setdefault(self.runs[i][shared], []).append(i)
            self.tokens.append(list(groups))
            self.targets.append([-1 - group[0] for group in groups.values()])
            for option, group in enumerate(groups.values()):
                if len(group) > 1:
                    waiting.append((group, shared + 1, (number, option)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Logits that a batch gives besides its margins.

    Attributes:
        tokens: (r,) int64, ascending rows of the output head.
        answers: (g,) int64, which answer of the batch each wanted logit is of.
        columns: (g,) int64, and of which of `tokens`.
    """

    tokens: Int64
    answers: Int64
    columns: Int64


def wanted_logits(parts: Sequence[tuple[int, Int64, LabelTree]]) -> Wanted:
    """The logits that some answers of a batch need.

    Args:
        parts: first answer, (m,) the node that each of m neighbouring answers is at, tree.
    """
    tokens = np.unique(np.concatenate([tree.tokens for _, _, tree in parts]))
    answers: list[Int64] = []
    columns: list[Int64] = []
    for first, nodes, tree in parts:
        begin, count = tree.offsets[nodes], np.diff(tree.offsets)[nodes]
        answers.append(np.repeat(first + np.arange(len(nodes)), count))
        columns.append(np.searchsorted(tokens, tree.tokens[ranges(begin, count)]))
    return Wanted(tokens, np.concatenate(answers), np.concatenate(columns))
