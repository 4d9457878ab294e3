"""The least tokens that the prompts of a query need, by the benchmark's newest definition.

    the distinct prefixes of preamble and document, over all anchors and filter subjects of a
        table's column, whatever the alias
  + for each document, the distinct prefixes of what is put behind it: tails, and the frame
        and first heading of joins
  + for each anchor and question, the distinct prefixes of its partners with their tails

A prompt that two aliases ask counts once. Nothing is shared between anchors for partners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from covey.prompts.forest import Trie, ask_pairs, build_trie, concatenate
from covey.prompts.tokens import Int32, Int64, Tokens
from suite.predicates import Predicate
from suite.tokens import CorpusTokens
from suite.work import Stage

Column = tuple[str, str]


def minimum_tokens(stages: Sequence[Stage], tokens: CorpusTokens) -> int:
    """The minimum of a query's stages."""
    asked: dict[str, list[Stage]] = defaultdict(list)
    subjects: dict[Column, list[Stage]] = defaultdict(list)
    for stage in stages:
        asked[stage.predicate.name].append(stage)
        subjects[_subject(stage.predicate)].append(stage)
    total = 0
    for column, group in subjects.items():
        rows = np.unique(np.concatenate([stage.anchors for stage in group]))
        total += _documents(column, rows, group[0].predicate, tokens).size
        total += _behind(group, tokens)
    return total + sum(_partners(group, tokens) for group in asked.values())


def requested_tokens(stages: Sequence[Stage], tokens: CorpusTokens) -> int:
    """The full length of every prompt, equal ones of two stages counted twice."""
    total = 0
    for stage in stages:
        pieces = tokens.pieces(stage.predicate)
        fixed = len(pieces.preamble) + len(pieces.frame) + pieces.pair_tokens
        total += fixed * stage.prompts
        for column, rows in zip(stage.predicate.documents, stage.rows, strict=True):
            counts = np.bincount(rows)
            total += int((tokens.lengths(column)[: len(counts)] * counts).sum())
    return total


def _subject(predicate: Predicate) -> Column:
    return predicate.documents[predicate.anchor]


def _documents(column: Column, rows: Int64, predicate: Predicate, tokens: CorpusTokens) -> Trie:
    preamble = literal(tokens.pieces(predicate).preamble)
    zeros = np.zeros(len(rows), dtype=np.int64)
    return build_trie(concatenate([(preamble, zeros), (tokens.column(column), rows)]))


def _behind(group: Sequence[Stage], tokens: CorpusTokens) -> int:
    """Prefixes behind the documents of one column: few sets of questions, many documents."""
    predicates = {stage.predicate.name: stage.predicate for stage in group}
    names = list(predicates)
    size = len(tokens.column(_subject(group[0].predicate)))
    asked = np.zeros((len(names), size), dtype=bool)
    for stage in group:
        asked[names.index(stage.predicate.name), stage.anchors] = True
    sets, counts = np.unique(asked, axis=1, return_counts=True)
    total = 0
    for chosen, count in zip(sets.T, counts.tolist(), strict=True):
        runs = [behind(predicates[n], tokens) for n, yes in zip(names, chosen, strict=True) if yes]
        total += count * _trie_size(runs) if runs else 0
    return total


def behind(predicate: Predicate, tokens: CorpusTokens) -> Int32:
    """What a predicate puts behind its anchor before anything varies."""
    pieces = tokens.pieces(predicate)
    if len(predicate.documents) == 1:
        return pieces.tail
    return np.concatenate([pieces.frame, pieces.heading])


def _trie_size(runs: Sequence[Int32]) -> int:
    offsets = np.concatenate([[0], np.cumsum([len(run) for run in runs])]).astype(np.int64)
    return build_trie(Tokens(np.concatenate(runs), offsets)).size


def _partners(group: Sequence[Stage], tokens: CorpusTokens) -> int:
    predicate = group[0].predicate
    if len(predicate.documents) == 1:
        return 0
    own, other = _subject(predicate), predicate.documents[1 - predicate.anchor]
    many = len(tokens.column(other))
    keys = np.unique(
        np.concatenate([s.anchors * many + s.rows[1 - predicate.anchor] for s in group])
    )
    if not len(keys):
        return 0
    anchors, anchor_row = np.unique(keys // many, return_inverse=True)
    partners, partner_row = np.unique(keys % many, return_inverse=True)
    tail = literal(tokens.pieces(predicate).tail)
    zeros = np.zeros(len(partners), dtype=np.int64)
    suffixes = build_trie(concatenate([(tokens.column(other), partners), (tail, zeros)]))
    forest = ask_pairs(
        _documents(own, anchors, predicate, tokens), suffixes, anchor_row, partner_row
    )
    return forest.suffix_tokens


def literal(ids: Int32) -> Tokens:
    """A column of one run."""
    return Tokens(ids, np.array([0, len(ids)], dtype=np.int64))
