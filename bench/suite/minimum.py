"""The least work that the prompts of a query need, by the benchmark's newest definition.

    the distinct prefixes of preamble and document, over all anchors and filter subjects of a
        table's column, whatever the alias
  + for each document, the distinct prefixes of what is put behind it: tails, and the instruction
        and first heading of joins
  + for each anchor and question, the distinct prefixes of its partners with their tails

A prompt that two aliases ask counts once, and so does the preamble of all. Nothing is
shared between anchors for partners. Token i of a prompt attends to itself and to the i
before it, however few of them are new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from covey.arrays import Int32, Int64
from covey.estimate.cost import Work
from covey.prompts.forest import Trie, ask_pairs, build_trie
from covey.prompts.tokens import Tokens, concatenate
from suite.predicates import Predicate
from suite.tokens import CorpusTokens
from suite.work import Stage

Column = tuple[str, str]


def minimum_tokens(stages: Sequence[Stage], tokens: CorpusTokens) -> int:
    """The fresh tokens of the minimum."""
    return round(minimum_work(stages, tokens, 1).fresh)


def minimum_work(stages: Sequence[Stage], tokens: CorpusTokens, budget: int) -> Work:
    """The minimum as counts of the cost model.

    Keys and values are written for documents that a later stage reads, and read once by
    each; partners behind a document are taken to run in its own pass.

    Args:
        budget: fresh tokens of a pass over the weights.
    """
    asked: dict[str, list[Stage]] = defaultdict(list)
    subjects: dict[Column, list[Stage]] = defaultdict(list)
    for stage in stages:
        asked[stage.predicate.name].append(stage)
        subjects[_subject(stage.predicate)].append(stage)
    total = Work(
        prompts=sum(stage.prompts for stage in stages), requested=requested_tokens(stages, tokens)
    )
    for number, (column, group) in enumerate(subjects.items()):
        rows = np.unique(np.concatenate([stage.anchors for stage in group]))
        if len(rows):
            trie = _documents(column, rows, group[0].predicate, tokens)
            preamble = len(tokens.pieces(group[0].predicate).preamble) if number else 0
            total += Work(fresh=trie.size - preamble, pairs=_pairs(trie))
            total += _behind(group, tokens) + _kept(group, tokens)
    for group in asked.values():
        total += _partners(group, tokens)
    return total + Work(passes=total.fresh / budget)


def requested_tokens(stages: Sequence[Stage], tokens: CorpusTokens) -> int:
    """The full length of every prompt, equal ones of two stages counted twice."""
    total = 0
    for stage in stages:
        pieces = tokens.pieces(stage.predicate)
        fixed = len(pieces.preamble) + len(pieces.instruction) + pieces.pair_tokens
        total += fixed * stage.prompts
        for column, rows in zip(stage.predicate.documents, stage.rows, strict=True):
            counts = np.bincount(rows)
            total += int((tokens.lengths(column)[: len(counts)] * counts).sum())
    return total


def _subject(predicate: Predicate) -> Column:
    return predicate.documents[predicate.anchor]


def _pairs(trie: Trie) -> float:
    """(query, key) pairs of the trie's tokens with all tokens of their paths."""
    long, shared = trie.lengths.astype(np.float64), trie.shared.astype(np.float64)
    return float((long * (long + 1) - shared * (shared + 1)).sum() / 2)


def _documents(column: Column, rows: Int64, predicate: Predicate, tokens: CorpusTokens) -> Trie:
    preamble = literal(tokens.pieces(predicate).preamble)
    zeros = np.zeros(len(rows), dtype=np.int64)
    return build_trie(concatenate([(preamble, zeros), (tokens.column(column), rows)]))


def _contexts(group: Sequence[Stage], tokens: CorpusTokens) -> Int64:
    """(rows of the column,) tokens of preamble and document."""
    predicate = group[0].predicate
    return tokens.lengths(_subject(predicate)) + len(tokens.pieces(predicate).preamble)


def _asked(group: Sequence[Stage], tokens: CorpusTokens) -> tuple[list[Predicate], np.ndarray]:
    """The predicates asked about one column, and (predicates, rows) of which row each is."""
    predicates = {stage.predicate.name: stage.predicate for stage in group}
    names = list(predicates)
    asked = np.zeros((len(names), len(_contexts(group, tokens))), dtype=bool)
    for stage in group:
        asked[names.index(stage.predicate.name), stage.anchors] = True
    return list(predicates.values()), asked


def _behind(group: Sequence[Stage], tokens: CorpusTokens) -> Work:
    """What stands behind the documents of one column: few sets of questions, many documents."""
    predicates, asked = _asked(group, tokens)
    contexts = _contexts(group, tokens)
    sets, member = np.unique(asked, axis=1, return_inverse=True)
    total = Work()
    for number, chosen in enumerate(sets.T):
        runs = [behind(p, tokens) for p, yes in zip(predicates, chosen, strict=True) if yes]
        if runs:
            trie = build_trie(_column(runs))
            rows = np.flatnonzero(member == number)
            before = float(contexts[rows].sum())
            pairs = trie.size * before + len(rows) * _pairs(trie)
            total += Work(fresh=trie.size * len(rows), pairs=pairs)
    return total


def _kept(group: Sequence[Stage], tokens: CorpusTokens) -> Work:
    """Keys and values of documents that more than one question reads."""
    _, asked = _asked(group, tokens)
    readers = np.maximum(asked.sum(0) - 1, 0)
    contexts = _contexts(group, tokens)
    written = float(contexts[readers > 0].sum())
    return Work(written=written, read=float((contexts * readers).sum()))


def behind(predicate: Predicate, tokens: CorpusTokens) -> Int32:
    """What a predicate puts behind its anchor before anything varies."""
    pieces = tokens.pieces(predicate)
    if len(predicate.documents) == 1:
        return pieces.tail
    return np.concatenate([pieces.instruction, pieces.heading])


def _partners(group: Sequence[Stage], tokens: CorpusTokens) -> Work:
    predicate = group[0].predicate
    if len(predicate.documents) == 1:
        return Work()
    own, other = _subject(predicate), predicate.documents[1 - predicate.anchor]
    many = len(tokens.column(other))
    rows = [(stage.anchors, stage.rows[1 - predicate.anchor]) for stage in group]
    keys = np.unique(np.concatenate([anchor * many + partner for anchor, partner in rows]))
    if not len(keys):
        return Work()
    anchors, anchor_row = np.unique(keys // many, return_inverse=True)
    partners, partner_row = np.unique(keys % many, return_inverse=True)
    tail = literal(tokens.pieces(predicate).tail)
    zeros = np.zeros(len(partners), dtype=np.int64)
    suffixes = build_trie(concatenate([(tokens.column(other), partners), (tail, zeros)]))
    documents = _documents(own, anchors, predicate, tokens)
    forest = ask_pairs(documents, suffixes, anchor_row, partner_row)
    widths = np.zeros(len(anchors), dtype=np.int64)
    widths[np.argsort(forest.host_of(np.arange(len(anchors))), kind="stable")] = forest.widths
    before = _contexts(group, tokens)[anchors] + len(behind(predicate, tokens))
    # A token of a partner has on average as many before it in its own suffix as in the trie.
    inside = _pairs(suffixes) / suffixes.size
    return Work(fresh=int(widths.sum()), pairs=float((widths * (before + inside)).sum()))


def literal(ids: Int32) -> Tokens:
    """A column of one run."""
    return Tokens(ids, np.array([0, len(ids)], dtype=np.int64))


def _column(runs: Sequence[Int32]) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum([len(run) for run in runs])]).astype(np.int64)
    return Tokens(np.concatenate(runs), offsets)
