"""Documents and what is asked of each: a trie with a second trie hung on its hosts.

The suffix trie is built once and *instanced*: no token, node or number is stored per
prompt when every suffix is asked of every host, and 12 bytes a pair when pairs are
chosen. The whole is one depth-first stream of tokens: a document node's own tokens, then
its instance of the suffixes if it is a host, then the document nodes below it. Places in
that stream are plain integers, found by adding up sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from covey.arrays import Int32, Int64, distinct, offsets_of
from covey.errors import InputError
from covey.prompts.forest.minima import Minima
from covey.prompts.forest.trie import Stream, Trie, stream_of


@dataclass(frozen=True)
class Chosen:
    """The suffixes asked of each host, where not all are.

    Attributes:
        offsets: (hosts + 1,) int64, a host's pairs are offsets[h]:offsets[h + 1].
        path: (pairs,) int32, suffix paths, ascending under one host.
        shared: (pairs,) int32, tokens shared with the pair before under the same host.
        first: (pairs + 1,) int64, where each pair's new tokens begin when the instances
            of all hosts are laid end to end.
    """

    offsets: Int64
    path: Int32
    shared: Int32
    first: Int64


@dataclass(frozen=True)
class Forest:
    """All prompts (document, suffix) of an operator; build one with `ask_all` or `ask_pairs`.

    A prompt's number, by which answers come back, is host · suffixes.paths + path where
    all are asked, and the position in `chosen.path` where pairs are chosen.

    Attributes:
        documents: the trie of preamble and document.
        suffixes: the trie of everything after the document, up to the cue. A row is one
            question's tail; an instruction, heading, partner and cue; or, to read a label's
            tokens one by one, a tail and the label's first 0, 1, 2 … tokens.
        hosts: (hosts,) int64, document nodes, ascending.
        chosen: the pairs, None where every suffix is asked of every host.
        requested_tokens: the full length of every prompt asked for, repeats included.
    """

    documents: Trie
    suffixes: Trie
    hosts: Int64
    chosen: Chosen | None
    requested_tokens: int

    @property
    def prompts(self) -> int:
        """Number of distinct prompts."""
        if self.chosen is None:
            return len(self.hosts) * self.suffixes.paths
        return len(self.chosen.path)

    @property
    def size(self) -> int:
        """Tokens of the stream: what is computed if nothing is computed twice."""
        return int(self._own.sum() + self.widths.sum())

    @cached_property
    def widths(self) -> Int64:
        """(hosts,) int64, tokens of each host's instance."""
        if self.chosen is None:
            return np.full(len(self.hosts), self.suffixes.size, dtype=np.int64)
        return np.diff(self.chosen.first[self.chosen.offsets])

    @cached_property
    def _own(self) -> Int64:
        """(document nodes,) int64, the node's tokens if a host is in its subtree, else 0."""
        trie = self.documents
        marked = np.zeros(len(trie), dtype=np.int64)
        marked[self.hosts] = 1
        before = offsets_of(marked)
        needed = before[trie.subtree_end] > before[:-1]
        return np.where(needed, trie.end - trie.start, 0)

    @cached_property
    def node_first(self) -> Int64:
        """(document nodes + 1,) int64, where each node begins in the stream."""
        sizes = self._own.copy()
        sizes[self.hosts] += self.widths
        return offsets_of(sizes)

    @cached_property
    def stations(self) -> Int64:
        """Document nodes that have any token in the stream, ascending."""
        return np.flatnonzero(np.diff(self.node_first))

    @cached_property
    def _station_first(self) -> Int64:
        """(stations,) int64, where each begins in the stream."""
        return self.node_first[self.stations]

    def station_of(self, places: Int64) -> Int64:
        """(n,) int64: position in `stations` of the node that owns each place of the stream."""
        return np.searchsorted(self._station_first, places, side="right") - 1

    @cached_property
    def suffix_stream(self) -> Stream:
        """The suffix trie's tokens in order; made once, copied into batches."""
        return stream_of(self.suffixes)

    @cached_property
    def host_rows(self) -> Int64:
        """(hosts,) int64, a document row that ends at each host."""
        trie = self.documents
        # Paths are in the order of their tokens; `ends_last` moves the nodes where they end.
        order = np.argsort(trie.path_node)
        return trie.rows[order[np.searchsorted(trie.path_node, self.hosts, sorter=order)]]

    def document_ranges(self, nodes: Int64) -> tuple[Int64, Int64]:
        """The stream range of each node's own tokens; empty where no host needs it."""
        begin = self.node_first[nodes]
        return begin, begin + self._own[nodes]

    def host_of(self, document_rows: Int64) -> Int64:
        """(n,) int64: position in `hosts` of each document row, which must be asked about."""
        return np.searchsorted(self.hosts, self.documents.row_node[document_rows])

    def prompt_of(self, document_rows: Int64, suffix_rows: Int64) -> Int64:
        """(n,) int64: the prompt that answers each pair of rows; every pair must be asked."""
        host, path = self.host_of(document_rows), self.suffixes.row_path[suffix_rows]
        wanted: Int64 = host * self.suffixes.paths + path
        return wanted if self.chosen is None else np.searchsorted(self._pair_keys, wanted)

    @cached_property
    def _pair_keys(self) -> Int64:
        """(pairs,) int64, ascending: host · paths + path of each chosen pair."""
        if self.chosen is None:
            return np.empty(0, dtype=np.int64)
        host = np.repeat(np.arange(len(self.hosts)), np.diff(self.chosen.offsets))
        return host * self.suffixes.paths + self.chosen.path

    def runs(self, host: int) -> tuple[Int64, Int64, Int64]:
        """A host's instance path by path, in stream order.

        Returns:
            (n,) suffix paths, (n,) tokens shared with the path before, and (n + 1,)
            where each path's new tokens begin, counted from the instance's start.
        """
        if self.chosen is None:
            paths = np.arange(self.suffixes.paths, dtype=np.int64)
            return paths, self.suffixes.shared, self.suffixes.path_first
        low, high = self.chosen.offsets[host : host + 2].tolist()
        first = self.chosen.first[low : high + 1]
        shared = self.chosen.shared[low:high].astype(np.int64)
        return self.chosen.path[low:high].astype(np.int64), shared, first - first[0]


def ask_all(documents: Trie, suffixes: Trie, document_rows: Int64 | None = None) -> Forest:
    """Ask every suffix row of every document row, or of some; InputError for an empty suffix."""
    _check(suffixes)
    rows = documents.row_path if document_rows is None else documents.row_path[document_rows]
    tokens = int(documents.lengths[rows].sum()) * len(suffixes.row_path)
    tokens += suffixes.requested_tokens * len(rows)
    hosts = distinct(documents.path_node[rows])
    return Forest(documents, suffixes, hosts, None, tokens)


def ask_pairs(documents: Trie, suffixes: Trie, document_rows: Int64, suffix_rows: Int64) -> Forest:
    """Ask suffix row suffix_rows[i] of document row document_rows[i]; repeats merge.

    Raises:
        InputError: a suffix row has no tokens.
    """
    _check(suffixes)
    nodes, paths = documents.row_node[document_rows], suffixes.row_path[suffix_rows]
    tokens = documents.lengths[documents.row_path[document_rows]].sum()
    tokens += suffixes.lengths[paths].sum()
    keys = distinct(nodes * suffixes.paths + paths)
    node, path = np.divmod(keys, suffixes.paths)
    first_of_host = np.ones(len(keys), dtype=np.bool_)
    first_of_host[1:] = node[1:] != node[:-1]
    heads = np.flatnonzero(first_of_host)
    shared = np.zeros(len(keys), dtype=np.int32)
    others = np.flatnonzero(~first_of_host)
    if len(others):
        shared[others] = Minima(suffixes.shared).over(path[others - 1] + 1, path[others] + 1)
    chosen = Chosen(
        np.append(heads, len(keys)),
        path.astype(np.int32),
        shared,
        offsets_of(suffixes.lengths[path] - shared),
    )
    return Forest(documents, suffixes, node[heads], chosen, int(tokens))


def _check(suffixes: Trie) -> None:
    empty = np.flatnonzero(suffixes.column.lengths == 0)
    if len(empty):
        raise InputError(
            f"suffix row {int(empty[0])} has no tokens, so there is no position to read its "
            "answer from; end it with the layout's cue"
        )
