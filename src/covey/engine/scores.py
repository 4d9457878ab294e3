"""From what forward batches give to the scores of rows: several answers a row, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.arrays import Float64, Int64, offsets_of, ranges
from covey.engine.batch import AnswerPart
from covey.engine.labels import LabelTree, Wanted, log_softmax, wanted_logits
from covey.engine.questions import QuestionTokens
from covey.prompts.question import Question, QuestionKind


@dataclass(frozen=True, slots=True)
class Values:
    """What some answers hold: a margin, or the logits of a node's options.

    Attributes:
        flat: float64.
        offsets: (n + 1,) int64, where each begins; one ends where the next begins.
    """

    flat: Float64
    offsets: Int64

    def take(self, answers: Int64) -> Values:
        """Those of some answers, in the order given."""
        sizes = np.diff(self.offsets)[answers]
        return Values(self.flat[ranges(self.offsets[answers], sizes)], offsets_of(sizes))

    def padded(self) -> Float64:
        """(n, most values) float64, minus infinity behind the last of each."""
        sizes = np.diff(self.offsets)
        found = np.full((len(sizes), int(sizes.max(initial=1))), -np.inf)
        found[np.arange(found.shape[1]) < sizes[:, None]] = self.flat
        return found


class BatchReading:
    """What is read of a forward batch, and where its answers find it.

    Args:
        parts: the answers of the forward batch.
        trees: the labels that each part's answers choose from; None where a margin is read.

    Attributes:
        wanted: the logits the forward batch must give besides its margins, None for none.
    """

    def __init__(self, parts: Sequence[AnswerPart], trees: Sequence[LabelTree | None]) -> None:
        self._count = parts[-1].stop if parts else 0
        self._offsets: list[Int64 | None] = []
        chosen: list[tuple[int, Int64, LabelTree]] = []
        place = self._count
        for part, tree in zip(parts, trees, strict=True):
            if tree is None:
                self._offsets.append(None)
                continue
            nodes = part.job.rows.first(part.prompts) % tree.nodes
            chosen.append((part.first, nodes, tree))
            offsets = place + offsets_of(np.diff(tree.offsets)[nodes])
            self._offsets.append(offsets)
            place = int(offsets[-1])
        self.wanted: Wanted | None = wanted_logits(chosen) if chosen else None

    def values(self, number: int, part: AnswerPart, found: Float64) -> Values:
        """The values of one part's answers.

        Args:
            number: of the part.
            part: the part.
            found: what the forward batch gave: its margins, then the wanted logits.
        """
        offsets = self._offsets[number]
        if offsets is None:
            offsets = np.arange(part.first, part.stop + 1, dtype=np.int64)
        return Values(found, offsets)


class RowValues:
    """Collects the answers of rows that have one a probe, until a row has them all.

    Args:
        probes: answers a row.
    """

    def __init__(self, probes: int) -> None:
        self._probes = probes
        self._keys = np.empty(0, dtype=np.int64)
        self._values = Values(np.empty(0), np.zeros(1, dtype=np.int64))

    def add(self, keys: Int64, values: Values) -> tuple[Int64, Float64]:
        """Add answers.

        Args:
            keys: (n,) int64, row * probes + probe.
            values: theirs.

        Returns:
            the rows that are complete now, ascending, and (rows, values) float64, the
            values of their probes side by side.
        """
        keys = np.concatenate([self._keys, keys])
        flat = np.concatenate([self._values.flat, values.flat])
        sizes = np.concatenate([np.diff(self._values.offsets), np.diff(values.offsets)])
        everything = Values(flat, offsets_of(sizes))
        order = np.argsort(keys)
        row = keys[order] // self._probes
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        count = np.diff(starts, append=len(row))
        whole = np.repeat(count == self._probes, count)
        rows = row[starts[count == self._probes]]
        left = order[~whole]
        self._keys, self._values = keys[left], everything.take(left)
        done = everything.take(order[whole]).flat
        return rows, done.reshape(len(rows), -1) if len(rows) else np.empty((0, 0))


def scores_of(
    question: Question, asked: QuestionTokens, values: Float64, prior: Float64 | None
) -> Float64:
    """The scores of rows whose answers are all there.

    Args:
        question: what was asked.
        asked: its tokens.
        values: (n, values of all probes).
        prior: (1 or labels,) scores of content-free documents, where they are subtracted.

    Returns:
        (n, question.width) float64.
    """
    if asked.tree is None:
        return calibrated(question, values if prior is None else values - prior)
    found = asked.tree.log_probabilities(values)
    if prior is not None:
        found = found - prior
        if question.full:
            found = log_softmax(found, np.array([0, found.shape[1]]))
    if question.full:
        return found
    best = found.argmax(axis=1)
    return np.stack([best.astype(np.float64), found[np.arange(len(found)), best]], axis=1)


def calibrated(question: Question, margins: Float64) -> Float64:
    """Margins on the line of the question's calibration."""
    chosen = question.calibration
    if question.kind is QuestionKind.CLASSIFY or chosen is None:
        return margins
    return chosen.line(margins)


@dataclass(frozen=True, slots=True)
class Branches:
    """What is known of some rows between two steps.

    Attributes:
        rows: (n,) int64, ascending rows of the batch.
        open: (n, nodes) float64, log-probability of the nodes that are reached and not
            read, minus infinity for all others.
        best: (n,) float64, the best finished label's score.
        label: (n,) int64, that label; -1 for none.
    """

    rows: Int64
    open: Float64
    best: Float64
    label: Int64

    def some(self, chosen: Int64) -> Branches:
        """Those of some positions."""
        return Branches(self.rows[chosen], self.open[chosen], self.best[chosen], self.label[chosen])

    def scores(self) -> Float64:
        """(n, 2) float64: label and its score, as a finished row gives them."""
        return np.stack([self.label.astype(np.float64), self.best], axis=1)


class Stepper:
    """Finds the best label by reading one node of a row at a time.

    Args:
        tree: the labels.
        prior: (labels,) is subtracted from their scores, or None.
    """

    def __init__(self, tree: LabelTree, prior: Float64 | None) -> None:
        labels = tree.labels
        self._tree = tree
        self._shift = np.zeros(labels) if prior is None else -prior
        self._bound = tree.below(self._shift)
        self._first = -tree.below(-np.arange(labels, dtype=np.float64))
        sizes = np.diff(tree.offsets)
        self._targets = np.zeros((tree.nodes, int(sizes.max())), dtype=np.int64)
        self._targets[np.arange(self._targets.shape[1]) < sizes[:, None]] = tree.targets

    def begin(self, rows: Int64) -> Branches:
        """Rows of which nothing is known: node 0 is open."""
        count = len(rows)
        still = np.full((count, self._tree.nodes), -np.inf)
        still[:, 0] = 0.0
        none = np.full(count, -1, dtype=np.int64)
        return Branches(rows, still, np.full(count, -np.inf), none)

    def read(self, known: Branches, nodes: Int64, values: Values) -> Int64:
        """Take in the options of one open node of each row; `known` is brought up to date.

        Returns:
            (n,) int64: the node to read next, -1 where the best label is found.
        """
        rows = np.arange(len(nodes))
        logits = values.padded()
        width = logits.shape[1]
        top = logits.max(axis=1, keepdims=True)
        chosen = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        scores = known.open[rows, nodes][:, None] + chosen
        known.open[rows, nodes] = -np.inf
        targets = self._targets[nodes, :width]
        real = np.isfinite(logits)
        row, option = np.nonzero(real & (targets >= 0))
        known.open[row, targets[row, option]] = scores[row, option]
        ended = real & (targets < 0)
        label = np.where(ended, -1 - targets, 0)
        final = np.where(ended, scores + self._shift[label], -np.inf)
        best = final.max(axis=1)
        number = np.where(final == best[:, None], label, self._tree.labels).min(axis=1)
        better = (best > known.best) | ((best == known.best) & (number < known.label))
        better &= np.isfinite(best)
        known.best[better], known.label[better] = best[better], number[better]
        bound = known.open + self._bound
        may = (bound > known.best[:, None]) | (
            (bound == known.best[:, None]) & (self._first < known.label[:, None])
        )
        may &= np.isfinite(known.open)
        return np.where(may.any(axis=1), bound.argmax(axis=1), -1)
