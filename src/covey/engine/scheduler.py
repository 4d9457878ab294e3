"""Which prompts run next, and what stays in the KV cache for those after them.

Jobs queue in the order of their tickets. A forward batch takes, until it is full,

1. the rest of what the end of the batch before cut,
2. anchors that are resident, of whichever job, lower tickets first: survivors of a filter
   are read while their keys and values are there,
3. the next nodes of the lowest job's forest, in depth-first order.

What is read or filled is locked until the forward batch is packed; they run in the order
they were packed, so a slot that is given away is read before it is written again. A prefix
gets slots when something reads it later: the rest of its own subtree in a later forward
batch, another `PromptBatch` in the queue, or one to come (`PromptBatch.reads`). All else
leaves nothing behind.

**No deadlock.** Between forward batches only the path of cut work is locked, and cut work goes
on first. No job has a path that cannot fit the KV cache (see `covey.engine.job_planner`), so that
what goes into a batch first always finds room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from covey.arrays import Int32, Int64
from covey.engine.batch import BatchBuilder, OpenSuffix, PackedBatch
from covey.engine.jobs import Job
from covey.engine.kv_cache.node import RadixNode
from covey.engine.kv_cache.radix_tree import RadixTree
from covey.engine.kv_cache.reads import DocumentReads
from covey.errors import RunError

# Work of at most this share of a batch is left for the next one rather than cut: a cut
# costs writing and reading keys and values, and an unfilled batch costs nothing.
_UNCUT = 8


@dataclass(slots=True)
class Visit:
    """A node being packed: its own tokens, then its suffixes if it is an anchor's end.

    Attributes:
        job: whose node it is.
        host: position among the job's hosts, None where only tokens are computed.
        node: resident, or being filled; locked as long as the visit.
        begin: place in the stream up to which it is packed.
        border: where its own tokens end.
        end: where the visit ends.
        prefix_length: tokens above its suffixes.
        suffix: where the open suffix is, once one was cut.
    """

    job: Job
    host: int | None
    node: RadixNode
    begin: int
    border: int
    end: int
    prefix_length: int
    suffix: OpenSuffix | None = None


class Scheduler:
    """Packs the queue's prompts into forward batches.

    Args:
        tree: the resident prefixes.
        max_batched_tokens: new tokens of a batch.
        reads: what is expected of each document.
    """

    def __init__(
        self,
        tree: RadixTree,
        max_batched_tokens: int,
        reads: DocumentReads,
    ) -> None:
        self._tree = tree
        self._most = max_batched_tokens
        self._uncut = max_batched_tokens // _UNCUT
        self._reads = reads
        self._jobs: list[Job] = []
        self._rest: dict[int, Iterator[Job]] = {}
        self._visit: Visit | None = None
        self._opened = False

    @property
    def idle(self) -> bool:
        """Whether nothing is left to pack."""
        return not self._jobs

    def add(self, ticket: int, jobs: Iterator[Job]) -> None:
        """Queue the jobs of a ticket, which is higher than those before; one is made at a time."""
        self._rest[ticket] = jobs
        self._add_next(ticket, len(self._jobs))

    def next_batch(self) -> PackedBatch | None:
        """Pack the next forward batch; None where nothing is left.

        Raises:
            RunError: the accounts of the KV cache are wrong.
        """
        if self.idle:
            return None
        builder = BatchBuilder(self._tree, self._most)
        if self._visit is None and self._jobs[0].whole:
            job = self._jobs[0]
            builder.add(job, 0, job.forest.size, self._tree.root)
            self._complete(builder, job, 0, job.left, None)
        else:
            self._fill(builder)
        if not builder.rows:
            raise RunError("KV accounting is off: no prompt of the queue finds room")
        packed = builder.build()
        builder.unlock()
        return packed

    def _fill(self, builder: BatchBuilder) -> None:
        if not self._opened:
            self._opened = True
            builder.add_preamble()
        if self._visit is not None:
            self._advance(builder, self._visit)
        while builder.room and self._jobs:
            if not self._start_ready(builder):
                self._start_next(builder)

    def _start_ready(self, builder: BatchBuilder) -> bool:
        """Start the next resident anchor; False where there is none."""
        for job in self._jobs:
            while job.ready:
                host = job.ready[0]
                if not job.done[host] and self._start_host(builder, job, host):
                    return True
                job.ready.popleft()
        return False

    def _start_host(self, builder: BatchBuilder, job: Job, host: int) -> bool:
        """Start an anchor out of turn; False where it is not resident after all."""
        forest, trie = job.forest, job.forest.documents
        node, tokens = int(forest.hosts[host]), trie.column.run(int(forest.host_rows[host]))
        depth = int(trie.depth[node])
        above, known = self._tree.match(self._tree.root, tokens)
        if known < max(depth, int(job.document_tokens[host])):
            return False
        end = int(forest.node_first[node + 1])
        work = _NodeWork(job, node, host, host, host + 1, known - depth, end, False, alone=True)
        self._enter(builder, work, above, tokens[known:])
        return True

    def _start_next(self, builder: BatchBuilder) -> None:
        """Go one node on in the forest of the lowest job."""
        job = self._jobs[0]
        if job.whole:  # the next batch is its own
            builder.close()
            return
        forest, trie = job.forest, job.forest.documents
        node = int(forest.stations[job.station])
        while job.trail and trie.subtree_end[job.trail[-1][0]] <= node:
            self._tree.finish(job.trail.pop()[1])
        first, stop = job.hosts_below(node)
        if job.done[first:stop].all():
            job.skip_below(node)
            return
        if job.trail and not job.trail[-1][1].resident:
            _back_up(job)
            return
        above = job.trail[-1][1] if job.trail else self._tree.root
        tokens = trie.column.flat[int(trie.start[node]) : int(trie.end[node])]
        above, known = self._tree.match(above, tokens)
        host = first if int(forest.hosts[first]) == node else None
        end = int(forest.node_first[trie.subtree_end[node]])
        children = int(trie.subtree_end[node]) > node + 1
        work = _NodeWork(job, node, host, first, stop, known, end, children)
        self._enter(builder, work, above, tokens[known:])

    def _enter(
        self, builder: BatchBuilder, work: _NodeWork, above: RadixNode, tokens: Int32
    ) -> None:
        """Pack all of some work and leave nothing, or begin to visit its node.

        Args:
            above: resident, ends where the work begins.
            tokens: those of the node that are not resident.
        """
        job = work.job
        size = work.end - work.begin
        if builder.rows and builder.room < size <= self._uncut:
            builder.close()
            return
        if not len(tokens):
            self._tree.lock(above)
            self._visit_node(builder, work, above)
            return
        fits = size <= builder.room and not job.done[work.first : work.stop].any()
        if fits and not self._keeps(work, above, len(tokens)):
            builder.lock(above)
            builder.add(job, work.begin, work.end, above)
            self._complete(builder, job, work.first, work.stop, None)
            if not work.alone:
                job.skip_below(work.node)
            return
        inserted = self._tree.insert(above, tokens, unfinished=work.children)
        if inserted is None:
            # What this batch locks is in the way: first run it, or look again without it.
            if builder.rows or not builder.unlock():
                builder.close()
            return
        self._visit_node(builder, work, inserted)

    def _visit_node(self, builder: BatchBuilder, work: _NodeWork, node: RadixNode) -> None:
        """Begin to visit a node, which is locked."""
        job, forest = work.job, work.job.forest
        _, border = forest.document_ranges(np.array([work.node]))
        host = work.host if work.host is not None and not job.done[work.host] else None
        visit = Visit(
            job=job,
            host=host,
            node=node,
            begin=work.begin,
            border=int(border[0]),
            end=int(border[0]) if host is None else int(forest.node_first[work.node + 1]),
            prefix_length=job.base + int(forest.documents.end_depth(work.node)),
        )
        if not work.alone:
            job.station += 1
            if work.children:
                job.trail.append((work.node, node))
        self._advance(builder, visit)

    def _advance(self, builder: BatchBuilder, visit: Visit) -> None:
        """Pack as much of a visit as fits."""
        self._visit = visit
        left, end = visit.end - visit.begin, visit.end
        if left > builder.room:
            if builder.rows and left <= self._uncut:
                builder.close()
                return
            end = visit.begin + builder.room
            if end > visit.border and not self._open(visit):
                end = visit.border
                if visit.begin >= end:
                    builder.close()
                    return
        if end > visit.begin:
            row = builder.add(visit.job, visit.begin, end, visit.node, visit.suffix)
            own = min(end, visit.border) - visit.begin
            if own > 0:
                builder.fill(row, visit.node, own)
            visit.begin = end
        if end < visit.end:
            if end > visit.border and visit.suffix is not None:
                builder.cut_suffix(visit.suffix, visit.prefix_length)
            builder.close()
            return
        self._visit = None
        builder.unlock_later(visit.node, visit.suffix)
        if visit.host is not None:
            self._complete(builder, visit.job, visit.host, visit.host + 1, visit.node)

    def _open(self, visit: Visit) -> bool:
        """Find slots for the suffix that will be open; False while too much is locked."""
        if visit.suffix is None:
            segments = self._tree.reserve(visit.node, 2 * visit.job.suffix_depth)
            visit.suffix = None if segments is None else OpenSuffix(segments)
        return visit.suffix is not None

    def _keeps(self, work: _NodeWork, above: RadixNode, count: int) -> bool:
        """Whether tokens that nothing in this batch needs kept should be kept for others."""
        documents = work.job.documents_of(work.first, work.stop)
        reads = float(self._reads.beside(documents).max())
        return reads > 0 and self._tree.is_worth_keeping(above.end, count, reads)

    def _complete(
        self, builder: BatchBuilder, job: Job, first: int, stop: int, node: RadixNode | None
    ) -> None:
        """All prompts of some hosts are packed; the prefix of a single one ends at `node`."""
        builder.minimum_tokens += job.finish(first, stop)
        if not job.whole:
            documents = job.documents_of(first, stop)
            self._reads.drop(documents)
            if node is not None or self._tree.documents:
                self._settle(job, documents, node)
        if not job.left:
            for _, above in reversed(job.trail):
                self._tree.finish(above)
            place = self._jobs.index(job)
            del self._jobs[place]
            self._add_next(job.ticket, place)

    def _settle(self, job: Job, documents: Int64, node: RadixNode | None) -> None:
        """Keep or drop what is resident of some documents."""
        expected = self._reads.expected(documents).tolist()
        for document, reads in zip(documents.tolist(), expected, strict=True):
            if node is not None or self._tree.keeps(document):
                self._tree.expect(document, node, reads)
            if self._reads.queued(document) and self._tree.keeps(document):
                for other in self._jobs:
                    host = None if other is job else other.host_with(document)
                    if host is not None and not other.done[host]:
                        other.ready.append(host)

    def _add_next(self, ticket: int, place: int) -> None:
        job = next(self._rest[ticket], None)
        if job is None:
            del self._rest[ticket]
            return
        self._jobs.insert(place, job)
        if self._tree.documents:
            for host in range(job.left):
                documents = job.documents_of(host, host + 1).tolist()
                if any(self._tree.keeps(document) for document in documents):
                    job.ready.append(host)


@dataclass(frozen=True, slots=True)
class _NodeWork:
    """A document node to pack, with all below it, or out of turn an anchor alone.

    Attributes:
        host: the anchor that ends at the node, if one does.
        first, stop: the hosts that the whole work finishes.
        known: tokens of the node that are resident.
        end: place in the stream where it ends.
        children: whether nodes below belong to it.
        alone: out of turn, so that the walk does not move.
    """

    job: Job
    node: int
    host: int | None
    first: int
    stop: int
    known: int
    end: int
    children: bool
    alone: bool = False

    @property
    def begin(self) -> int:
        """Place in the stream where it begins."""
        return int(self.job.forest.node_first[self.node]) + self.known


def _back_up(job: Job) -> None:
    """Let the walk compute again what was evicted above it."""
    lost = next(i for i, (_, above) in enumerate(job.trail) if not above.resident)
    job.station = int(np.searchsorted(job.forest.stations, job.trail[lost][0]))
    del job.trail[lost:]
