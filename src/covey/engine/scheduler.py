"""Which prompts run next, and what stays in the arena for those after them.

Jobs queue in the order of their tickets. A chunk takes, until it is full,

1. the rest of what the end of the chunk before cut,
2. anchors that are resident, of whichever job, lower tickets first: survivors of a filter
   are read while their keys and values are there,
3. the next nodes of the lowest job's forest, in depth-first order.

What is read or placed is held until the chunk is packed; chunks run in the order they were
packed, so a slot that is given away is read before it is written again. A prefix gets slots
when something reads it later: the rest of its own subtree in a later chunk, another batch
in the queue, or one to come (`PromptBatch.reads`). All else leaves nothing behind.

**No deadlock.** Between chunks only the path of cut work is held, and cut work goes on first.
No job has a path that cannot fit the arena (see `covey.engine.planning`), so that the first
piece of a chunk always finds room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from covey.arrays import Int32, Int64
from covey.engine.chunk import BuiltChunk, ChunkBuilder, OpenSuffix
from covey.engine.grove import Grove, GroveNode
from covey.engine.jobs import Job
from covey.engine.reads import Reads
from covey.engine.residents import Admission
from covey.errors import RunError

# Work of at most this share of a chunk is left for the next one rather than cut: a cut
# costs writing and reading keys and values, and an unfilled chunk costs nothing.
_UNCUT = 8


@dataclass(slots=True)
class Visit:
    """A node being packed: its own tokens, then its suffixes if it is an anchor's end.

    Attributes:
        job: whose node it is.
        host: position among the job's hosts, None where only tokens are computed.
        node: resident, or being filled.
        begin: place in the stream up to which it is packed.
        border: where its own tokens end.
        end: where the visit ends.
        prefix_length: tokens above its suffixes.
        holds: admissions that last as long as the visit.
        suffix: where the open suffix is, once one was cut.
    """

    job: Job
    host: int | None
    node: GroveNode
    begin: int
    border: int
    end: int
    prefix_length: int
    holds: list[Admission] = field(default_factory=list)
    suffix: OpenSuffix | None = None


class Scheduler:
    """Packs the queue's prompts into chunks.

    Args:
        grove: the resident prefixes.
        budget: new tokens of a chunk.
        reads: what is expected of each document.
        finished: told of minimum tokens whose prompts have all been packed.
    """

    def __init__(
        self, grove: Grove, budget: int, reads: Reads, finished: Callable[[int], None]
    ) -> None:
        self._grove = grove
        self._budget = budget
        self._uncut = budget // _UNCUT
        self._reads = reads
        self._finished = finished
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

    def next_chunk(self) -> BuiltChunk | None:
        """Pack the next chunk; None where nothing is left.

        Raises:
            RunError: the accounts of the arena are wrong.
        """
        if self.idle:
            return None
        builder = ChunkBuilder(self._grove, self._budget)
        if self._visit is None and self._jobs[0].whole:
            job = self._jobs[0]
            builder.add(job, 0, job.forest.size, self._grove.root)
            self._complete(job, 0, job.left, None)
        else:
            self._fill(builder)
        if not builder.rows:
            raise RunError("KV accounting is off: no prompt of the queue finds room in the arena")
        built = builder.build()
        builder.let_go()
        return built

    def _fill(self, builder: ChunkBuilder) -> None:
        if not self._opened:
            self._opened = True
            builder.add_opening()
        if self._visit is not None:
            self._advance(builder, self._visit)
        while builder.room and self._jobs:
            if not self._start_ready(builder):
                self._start_next(builder)

    def _start_ready(self, builder: ChunkBuilder) -> bool:
        """Start the next resident anchor; False where there is none."""
        for job in self._jobs:
            while job.ready:
                host = job.ready[0]
                if not job.done[host] and self._start_host(builder, job, host):
                    return True
                job.ready.popleft()
        return False

    def _start_host(self, builder: ChunkBuilder, job: Job, host: int) -> bool:
        """Start an anchor out of turn; False where it is not resident after all."""
        forest, trie = job.forest, job.forest.documents
        node, tokens = int(forest.hosts[host]), trie.column.run(int(forest.host_rows[host]))
        depth = int(trie.depth[node])
        above, known = self._grove.match(self._grove.root, tokens)
        if known < max(depth, int(job.document_tokens[host])):
            return False
        end = int(forest.node_first[node + 1])
        work = _Work(job, node, host, host, host + 1, known - depth, end, False, alone=True)
        self._enter(builder, work, above, tokens[known:])
        return True

    def _start_next(self, builder: ChunkBuilder) -> None:
        """Go one node on in the forest of the lowest job."""
        job = self._jobs[0]
        if job.whole:  # the next chunk is its own
            builder.close()
            return
        forest, trie = job.forest, job.forest.documents
        node = int(forest.stations[job.station])
        while job.trail and trie.subtree_end[job.trail[-1][0]] <= node:
            self._grove.close(job.trail.pop()[1])
        first, stop = job.hosts_below(node)
        if job.done[first:stop].all():
            job.skip_below(node)
            return
        if job.trail and not job.trail[-1][1].resident:
            _back_up(job)
            return
        above = job.trail[-1][1] if job.trail else self._grove.root
        tokens = trie.column.flat[int(trie.start[node]) : int(trie.end[node])]
        above, known = self._grove.match(above, tokens)
        host = first if int(forest.hosts[first]) == node else None
        end = int(forest.node_first[trie.subtree_end[node]])
        children = int(trie.subtree_end[node]) > node + 1
        work = _Work(job, node, host, first, stop, known, end, children)
        self._enter(builder, work, above, tokens[known:])

    def _enter(self, builder: ChunkBuilder, work: _Work, above: GroveNode, tokens: Int32) -> None:
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
            admission = self._grove.hold(above)
            self._visit_node(builder, work, above, admission)
            return
        fits = size <= builder.room and not job.done[work.first : work.stop].any()
        if fits and not self._keeps(work, above, len(tokens)):
            builder.hold(above)
            builder.add(job, work.begin, work.end, above)
            self._complete(job, work.first, work.stop, None)
            if not work.alone:
                job.skip_below(work.node)
            return
        grown = self._grove.grow(above, tokens, children=work.children)
        if grown is None:
            # What this chunk holds is in the way: first run it, or look again without it.
            if builder.rows or not builder.let_go():
                builder.close()
            return
        self._visit_node(builder, work, *grown)

    def _visit_node(
        self, builder: ChunkBuilder, work: _Work, node: GroveNode, admission: Admission | None
    ) -> None:
        job, forest, trie = work.job, work.job.forest, work.job.forest.documents
        _, border = forest.document_ranges(np.array([work.node]))
        host = work.host if work.host is not None and not job.done[work.host] else None
        visit = Visit(
            job=job,
            host=host,
            node=node,
            begin=work.begin,
            border=int(border[0]),
            end=int(border[0]) if host is None else int(forest.node_first[work.node + 1]),
            prefix_length=job.base
            + int(trie.depth[work.node] + trie.end[work.node] - trie.start[work.node]),
            holds=[] if admission is None else [admission],
        )
        if not work.alone:
            job.station += 1
            if work.children:
                job.trail.append((work.node, node))
        self._advance(builder, visit)

    def _advance(self, builder: ChunkBuilder, visit: Visit) -> None:
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
                builder.keep(row, visit.node, own)
            visit.begin = end
        if end < visit.end:
            if end > visit.border and visit.suffix is not None:
                builder.cut_suffix(visit.suffix, visit.prefix_length)
            builder.close()
            return
        self._visit = None
        builder.finish(*visit.holds)
        if visit.host is not None:
            self._complete(visit.job, visit.host, visit.host + 1, visit.node)

    def _open(self, visit: Visit) -> bool:
        """Find slots for the suffix that will be open; False while too much is held."""
        if visit.suffix is None:
            admission = self._grove.pool.admit(visit.node.span, [2 * visit.job.suffix_depth])
            if admission is None:
                return False
            visit.suffix = OpenSuffix(self._grove.pool.place(admission))
            visit.holds.insert(0, admission)
        return True

    def _keeps(self, work: _Work, above: GroveNode, count: int) -> bool:
        """Whether tokens that nothing in this chunk needs kept should be kept for others."""
        documents = work.job.documents_of(work.first, work.stop)
        reads = float(self._reads.beside(documents).max())
        if reads <= 0:
            return False
        pool = self._grove.pool
        least = pool.retention.least()
        if pool.free - pool.reserved >= count or least is None:
            return True
        return pool.retention[least] < pool.retention.value(above.end, count, reads)

    def _complete(self, job: Job, first: int, stop: int, node: GroveNode | None) -> None:
        """All prompts of some hosts are packed; the prefix of a single one ends at `node`."""
        self._finished(job.finish(first, stop))
        if not job.whole:
            documents = job.documents_of(first, stop)
            self._reads.drop(documents)
            if node is not None or self._grove.documents:
                self._settle(job, documents, node)
        if not job.left:
            for _, above in reversed(job.trail):
                self._grove.close(above)
            place = self._jobs.index(job)
            del self._jobs[place]
            self._add_next(job.ticket, place)

    def _settle(self, job: Job, documents: Int64, node: GroveNode | None) -> None:
        """Keep or drop what is resident of some documents."""
        grove = self._grove
        expected = self._reads.expected(documents).tolist()
        for document, reads in zip(documents.tolist(), expected, strict=True):
            if node is not None or grove.holds(document):
                grove.expect(document, node, reads)
            if self._reads.queued(document) and grove.holds(document):
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
        if self._grove.documents:
            for host in range(job.left):
                documents = job.documents_of(host, host + 1).tolist()
                if any(self._grove.holds(document) for document in documents):
                    job.ready.append(host)


@dataclass(frozen=True, slots=True)
class _Work:
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
