"""A batch of prompts as work: a forest, what is done of it, and whose answers come out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from covey.arrays import Bool, Int64, offsets_of, ranges
from covey.engine.kv_cache.node import RadixNode
from covey.prompts.forest import Forest


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a batch by the prompt that answers them; see `rows_by_prompt`.

    Attributes:
        rows: (n,) int64, ordered by prompt.
        offsets: (prompts + 1,) int64 into `rows`; None where each prompt has one row.
    """

    rows: Int64
    offsets: Int64 | None

    def of(self, prompts: Int64) -> tuple[Int64, Int64]:
        """The rows of some prompts, and for each row the position of its prompt."""
        if self.offsets is None:
            return self.rows[prompts], np.arange(len(prompts), dtype=np.int64)
        first = self.offsets[prompts]
        count = self.offsets[prompts + 1] - first
        return self.rows[ranges(first, count)], np.repeat(np.arange(len(prompts)), count)

    def first(self, prompts: Int64) -> Int64:
        """One row of each of some prompts."""
        return self.rows[prompts if self.offsets is None else self.offsets[prompts]]


def rows_by_prompt(prompt: Int64, rows: Int64, prompts: int) -> Rows:
    """Turn the prompt of each row round; every prompt has a row."""
    if len(rows) == prompts:
        inverse = np.empty(prompts, dtype=np.int64)
        inverse[prompt] = rows
        return Rows(inverse, None)
    order = np.argsort(prompt, kind="stable")
    return Rows(rows[order], offsets_of(np.bincount(prompt, minlength=prompts)))


@dataclass(eq=False)
class Job:
    """Prompts that share a forest of prefixes and suffixes.

    Attributes:
        ticket: the batch they belong to.
        forest: shared prefixes without the preamble, and suffixes.
        minimum: (hosts,) int64, tokens that each adds to the session's minimum.
        rows: whose answers the prompts are.
        whole: runs in one batch of its own, reading and leaving nothing in the KV cache.
        base: tokens above the forest's.
        documents: (d,) int64 anchors in the order of their hosts.
        document_offsets: (hosts + 1,) int64 into `documents`.
        document_tokens: (hosts,) int64, tokens of the anchor, the instruction not counted.
        done: (hosts,) bool, those whose prompts have all been packed.
        left: hosts that are not done.
        ready: hosts whose document was resident when it was last heard of.
        station: where the walk over the forest's stations is.
        trail: (node, resident end) of the stations above it, top down.
    """

    ticket: int
    forest: Forest
    minimum: Int64
    rows: Rows
    whole: bool = True
    base: int = 0
    documents: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    document_offsets: Int64 = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    document_tokens: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    done: Bool = field(init=False)
    left: int = field(init=False)
    ready: deque[int] = field(default_factory=deque)
    station: int = 0
    trail: list[tuple[int, RadixNode]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = len(self.forest.hosts)
        self.done = np.zeros(self.left, dtype=np.bool_)
        self._host_order = np.argsort(self.documents)

    @property
    def suffix_depth(self) -> int:
        """Tokens of the longest suffix."""
        return int(self.forest.suffixes.lengths.max())

    def documents_of(self, first: int, stop: int) -> Int64:
        """The anchors of some hosts."""
        return self.documents[self.document_offsets[first] : self.document_offsets[stop]]

    def host_with(self, document: int) -> int | None:
        """The host of a document, None where the job has no such anchor."""
        order = self._host_order
        place = int(np.searchsorted(self.documents, document, sorter=order))
        if place == len(order) or self.documents[order[place]] != document:
            return None
        return int(np.searchsorted(self.document_offsets, order[place], side="right")) - 1

    def hosts_below(self, node: int) -> tuple[int, int]:
        """The hosts in a document node's subtree, as a range."""
        trie = self.forest.documents
        first, stop = np.searchsorted(self.forest.hosts, (node, trie.subtree_end[node])).tolist()
        return first, stop

    def finish(self, first: int, stop: int) -> int:
        """Note that hosts are done, none of which was; returns their minimum tokens."""
        self.done[first:stop] = True
        self.left -= stop - first
        return int(self.minimum[first:stop].sum())

    def skip_below(self, node: int) -> None:
        """Move the walk past a node's subtree."""
        stop = self.forest.documents.subtree_end[node]
        self.station = int(np.searchsorted(self.forest.stations, stop))

    def requested(self, prompts: Int64) -> Int64:
        """(n,) int64: full lengths of some prompts."""
        forest = self.forest
        if forest.chosen is None:
            host, path = np.divmod(prompts, forest.suffixes.paths)
        else:
            host = np.searchsorted(forest.chosen.offsets, prompts, side="right") - 1
            path = forest.chosen.path[prompts].astype(np.int64)
        prefix = forest.documents.end_depth(forest.hosts[host])
        length: Int64 = self.base + prefix + forest.suffixes.lengths[path]
        return length
