"""From a batch to jobs: which rows can run, and the forests of their prompts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from covey.arrays import Int64, offsets_of
from covey.engine.base import PromptBatch
from covey.engine.jobs import Job, Rows, rows_by_prompt
from covey.engine.kv_cache.reads import DocumentReads
from covey.engine.limits import Limits
from covey.engine.minimum import SeenPrefixes
from covey.engine.pairs import Pairs, distinct_ids
from covey.engine.questions import QuestionTokens, literal, prefix_tokens, suffix_tokens
from covey.prompts.forest import (
    Forest,
    Trie,
    ask_all,
    ask_pairs,
    build_trie,
    ends_last,
    flatten,
)
from covey.prompts.tokens import DocumentTokens, Tokens, concatenate


class JobPlanner:
    """Makes jobs of batches.

    Args:
        documents: the session's tokens.
        limits: what a job may be.
        reads: told of queued documents that no job will read.
    """

    def __init__(self, documents: DocumentTokens, limits: Limits, reads: DocumentReads) -> None:
        self._documents = documents
        self._limits = limits
        self._reads = reads
        self._preamble_counted = False
        self._seen = SeenPrefixes(limits.spill_bytes)

    def failures(self, batch: PromptBatch, asked: QuestionTokens, pairs: Pairs) -> dict[int, str]:
        """The rows of some pairs that cannot run, and why; their documents must be ensured."""
        documents, limit = self._documents, self._limits.context
        longest = int(documents.lengths(pairs.anchors).max(initial=0))
        longest += int(documents.lengths(pairs.partners).sum(axis=1).max(initial=0))
        broken = documents.errors
        if longest + asked.fixed <= limit and not broken:
            return {}
        ids = batch.documents[pairs.rows]
        lengths = documents.lengths(ids).sum(axis=1, dtype=np.int64) + asked.fixed
        wrong = lengths > limit
        if broken:
            wrong |= np.isin(ids, np.array(sorted(broken), dtype=np.int64)).any(axis=1)
        found: dict[int, str] = {}
        for place in np.flatnonzero(wrong).tolist():
            reasons = (broken.get(i) for i in ids[place].tolist())
            found[int(pairs.rows[place])] = next(filter(None, reasons), None) or (
                f"the prompt is {lengths[place]:,} tokens long; {limit:,} is the model's limit"
            )
        return found

    def jobs(
        self,
        ticket: int,
        asked: QuestionTokens,
        pairs: Pairs,
        failed: Int64,
        nodes: Int64 | None = None,
    ) -> Iterator[Job]:
        """The jobs of a batch's pairs, those of failed rows left out.

        Args:
            nodes: the one probe that each row is asked, of a question that has several;
                None for all. The rows of jobs are then row * probes + probe.
        """
        if asked.anchor is None:
            if not len(failed) and len(pairs.rows):
                yield self._alone(ticket, asked, _probed(pairs, asked, nodes))
            return
        queued = pairs.anchors
        if len(failed):
            if nodes is not None:
                nodes = nodes[~np.isin(pairs.rows, failed)]
            pairs = pairs.without(failed)
        if not len(pairs.rows):
            self._reads.drop(queued)
            return
        pairs = _probed(pairs, asked, nodes)
        suffixes = suffix_tokens(asked, pairs.partners, self._documents)
        room = len(asked.preamble) + len(asked.examples) + len(asked.instruction)
        room += 2 * int(suffixes.lengths.max())
        fits = self._documents.lengths(pairs.anchors) + room <= self._limits.slots
        self._reads.drop(np.setdiff1d(queued, pairs.anchors[fits], assume_unique=True))
        if fits.any():
            fitting = pairs.of_anchors(fits)
            tree = build_trie(suffixes)
            totals = np.cumsum(self._documents.lengths(fitting.anchors) + len(asked.examples))
            slices = (totals - 1) // self._limits.job_tokens
            for number in np.unique(slices).tolist():
                part = fitting.of_anchors(slices == number)
                yield self._job(ticket, asked, part, tree)
        if not fits.all():
            yield from self._whole(ticket, asked, pairs.of_anchors(~fits), suffixes)

    def _job(self, ticket: int, asked: QuestionTokens, pairs: Pairs, tree: Trie) -> Job:
        exact = build_trie(prefix_tokens(asked, pairs.anchors, self._documents))
        placed = ends_last(exact)
        forest = _forest(placed, tree, pairs)
        minimum = self._least(asked, placed, forest)
        flat = flatten(exact, self._limits.node_tokens)
        prefixes = placed if flat is exact else ends_last(flat)
        suffixes = flatten(tree, self._limits.node_tokens)
        if prefixes is not placed or suffixes is not tree:
            forest = _forest(prefixes, suffixes, pairs)
        host = forest.host_of(np.arange(len(pairs.anchors)))
        return Job(
            ticket,
            forest,
            minimum,
            _rows(forest, pairs),
            whole=False,
            base=len(asked.preamble),
            documents=pairs.anchors[np.argsort(host, kind="stable")],
            document_offsets=offsets_of(np.bincount(host, minlength=len(forest.hosts))),
            document_tokens=forest.documents.end_depth(forest.hosts) - len(asked.instruction),
        )

    def _least(self, asked: QuestionTokens, prefixes: Trie, forest: Forest) -> Int64:
        """(hosts,) int64: what each host adds to the session's minimum."""
        least = self._seen.add(prefixes)[np.argsort(prefixes.path_node)] + forest.widths
        if not self._preamble_counted:
            self._preamble_counted = True
            least[0] += len(asked.preamble)
        return least

    def _alone(self, ticket: int, asked: QuestionTokens, pairs: Pairs) -> Job:
        """The one prompt of a question without documents."""
        suffixes = suffix_tokens(asked, pairs.partners, self._documents)
        forest = ask_all(build_trie(literal(asked.preamble)), build_trie(suffixes))
        return _whole_job(ticket, forest, pairs.rows, pairs.partner_of, np.array([forest.size]))

    def _whole(
        self, ticket: int, asked: QuestionTokens, pairs: Pairs, suffixes: Tokens
    ) -> Iterator[Job]:
        """Jobs of anchors that the KV cache cannot hold: each runs inside one forward batch."""
        exact = build_trie(prefix_tokens(asked, pairs.anchors, self._documents))
        every = _forest(exact, build_trie(suffixes), pairs)
        minimum = self._least(asked, exact, every)
        host = every.host_of(np.arange(len(pairs.anchors)))
        counted: set[int] = set()
        for number in range(len(pairs.anchors)):
            prefix = self._prefix_trie(asked, pairs.anchors[number : number + 1])
            mine = np.flatnonzero(pairs.anchor_of == number)
            totals = np.cumsum(suffixes.lengths[pairs.partner_of[mine]])
            groups = (totals - 1) // self._limits.max_batched_tokens
            for group in np.unique(groups).tolist():
                inside = mine[groups == group]
                chosen = pairs.partner_of[inside]
                tree = build_trie(concatenate([(suffixes, chosen)]))
                forest = ask_all(prefix, tree)
                at = int(host[number])
                least = 0 if at in counted else int(minimum[at])
                counted.add(at)
                place = np.arange(len(inside), dtype=np.int64)
                yield _whole_job(ticket, forest, pairs.rows[inside], place, np.array([least]))

    def _prefix_trie(self, asked: QuestionTokens, anchor: Int64) -> Trie:
        """The trie of one prefix with its preamble."""
        prefix = prefix_tokens(asked, anchor, self._documents)
        first = np.zeros(1, dtype=np.int64)
        return build_trie(concatenate([(literal(asked.preamble), first), (prefix, first)]))


def _probed(pairs: Pairs, asked: QuestionTokens, nodes: Int64 | None) -> Pairs:
    """The rows of some pairs with all their probes, or each with one."""
    if asked.probes is None:
        return pairs
    count = len(asked.probes)
    if nodes is None:
        every = np.arange(count, dtype=np.int64)
        anchor_of = np.repeat(pairs.anchor_of, count) if len(pairs.anchor_of) else every[:0]
        return Pairs(
            (pairs.rows[:, None] * count + every).reshape(-1),
            pairs.anchors,
            anchor_of,
            np.column_stack(
                [np.repeat(pairs.partners, count, axis=0), np.tile(every, len(pairs.partners))]
            ),
            (pairs.partner_of[:, None] * count + every).reshape(-1),
        )
    found, partner_of = distinct_ids(pairs.partner_of * count + nodes)
    partners = np.column_stack([pairs.partners[found // count], found % count])
    rows = pairs.rows * count + nodes
    return Pairs(rows, pairs.anchors, pairs.anchor_of, partners, partner_of)


def _forest(prefixes: Trie, suffixes: Trie, pairs: Pairs) -> Forest:
    if pairs.all:
        return ask_all(prefixes, suffixes)
    return ask_pairs(prefixes, suffixes, pairs.anchor_of, pairs.partner_of)


def _rows(forest: Forest, pairs: Pairs) -> Rows:
    if forest.chosen is None:  # looked up once an anchor, not once a row
        if pairs.block == forest.suffixes.paths and len(forest.hosts) == len(pairs.anchors):
            return _rows_of_blocks(forest, pairs)
        first = forest.host_of(np.arange(len(pairs.anchors))) * forest.suffixes.paths
        prompt = first[pairs.anchor_of]
        prompt += forest.suffixes.row_path[pairs.partner_of]
    else:
        prompt = forest.prompt_of(pairs.anchor_of, pairs.partner_of)
    return rows_by_prompt(prompt, pairs.rows, forest.prompts)


def _rows_of_blocks(forest: Forest, pairs: Pairs) -> Rows:
    """Where each pair is a prompt of its own: a block of rows is a host's prompts, reordered."""
    by_host = np.argsort(forest.host_of(np.arange(len(pairs.anchors)))[pairs.owners])
    by_path = np.argsort(forest.suffixes.row_path[pairs.pattern])
    rows = pairs.rows.reshape(-1, pairs.block)
    return Rows(rows[by_host[:, None], by_path].reshape(-1), None)


def _whole_job(ticket: int, forest: Forest, rows: Int64, place: Int64, minimum: Int64) -> Job:
    """A job of one host; `place` is each row's suffix row."""
    prompt = forest.prompt_of(np.zeros_like(rows), place)
    return Job(ticket, forest, minimum, rows_by_prompt(prompt, rows, forest.prompts))
