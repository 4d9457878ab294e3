"""Probabilities that mean what they say: a line through margins, learned from labelled rows.

Platt's scaling (J. Platt, "Probabilistic outputs for support vector machines", 1999) makes
P(TRUE) = 1 / (1 + exp(-(slope * margin + intercept))), the two numbers being those of
logistic regression, with his targets (n + 1) / (n + 2) and 1 / (m + 2) for n rows that are
TRUE and m that are FALSE in place of 1 and 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from covey.api.frontend import Frontend
from covey.api.sources import register, unregister
from covey.api.sql_text import sql_expression
from covey.arrays import Bool, Float64, Int64
from covey.errors import InputError
from covey.execution.answers import QueryAnswers
from covey.execution.sql_values import sigmoid
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Calibration
from covey.sql.rewritten import Fragment, RewrittenSql, SourceText
from covey.sql.temporary import finish
from covey.sql.text import quote_name

if TYPE_CHECKING:
    from covey.api.connection import Connection


_FOLDS = 5
_BINS = 10
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Quality:
    """How far probabilities can be believed.

    Attributes:
        error: expected calibration error, the mean distance over rows of a bin's mean
            probability from its share of TRUE, in ten bins of equal width.
        loss: mean negative log-likelihood of the labels, nats.
        bins: (k, 3) float64: mean probability, share of TRUE and rows of each bin that has
            rows.
    """

    error: float
    loss: float
    bins: Float64


@dataclass(frozen=True, slots=True)
class Reliability:
    """What `Connection.calibrate` learned, and what it is worth.

    Attributes:
        question: as given.
        calibration: goes into a query by the option calibration => 'labelled'.
        rows: rows with a label and an answer.
        left_out: rows without one of them.
        positive: share of TRUE labels.
        before: of the probabilities as the model gives them.
        after: of calibrated ones, each row's by a line that was learned from other rows
            (five folds), so that it is what new rows can expect.
    """

    question: str
    calibration: Calibration
    rows: int
    left_out: int
    positive: float
    before: Quality
    after: Quality

    def __str__(self) -> str:
        lines = [
            f"{self.question}",
            f"  {self.rows:,} labelled rows, {self.positive:.0%} TRUE"
            + (f"; {self.left_out:,} without a label or an answer" if self.left_out else ""),
            f"  margin x {self.calibration.slope:.3g} {self.calibration.intercept:+.3g}",
            f"  calibration error {self.before.error:.3f} before, {self.after.error:.3f} after",
            f"  log loss          {self.before.loss:.3f} before, {self.after.loss:.3f} after",
        ]
        if self.calibration.slope <= 0:
            lines.append("  The margins run against the labels: this question is misunderstood.")
        return "\n".join(lines)

    def plot(self, path: str | PathLike[str]) -> None:
        """Write a reliability diagram as a PNG file.

        Raises:
            InputError: matplotlib is not installed, or the file cannot be written.
        """
        if find_spec("matplotlib") is None:
            raise InputError("A plot needs matplotlib: pip install 'covey[bench]'")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, quality, marker in (("before", self.before, "o"), ("after", self.after, "s")):
            label = f"{name}: error {quality.error:.3f}, log loss {quality.loss:.3f}"
            axes.plot(quality.bins[:, 0], quality.bins[:, 1], marker=marker, label=label)
        axes.set(xlabel="mean P(TRUE)", ylabel="share labelled TRUE", xlim=(0, 1), ylim=(0, 1))
        axes.set_title(f"{self.question}\n{self.rows:,} rows", fontsize=9, wrap=True)
        axes.legend(loc="best", fontsize=8)
        try:
            figure.savefig(fspath(path), format="png", dpi=120)
        except OSError as error:
            raise InputError(f"The plot cannot be written: {error}") from None


def calibrate(
    connection: Connection, question: str, labelled: Any, label: str, options: Mapping[str, Any]
) -> Reliability:
    """See `Connection.calibrate`."""
    if "calibration" in options:
        raise InputError("calibrate takes no calibration: it learns one from plain margins.")
    if isinstance(labelled, str):
        return _calibrate(connection, question, labelled, label, options)
    table = connection.new_objects().new_name("labelled")
    try:
        register(connection.duckdb, connection.new_objects(), table, labelled, "labelled")
        return _calibrate(connection, question, table, label, options)
    finally:
        # A failed transaction takes it along.
        with suppress(duckdb.Error):
            finish(connection.duckdb, partial(unregister, connection.duckdb, table))


def _calibrate(
    connection: Connection, question: str, relation: str, label: str, options: Mapping[str, Any]
) -> Reliability:
    """Learn from the rows of a table."""
    places = connection.table(*relation.split(".")).placeholders()
    call = places.call("AI.MARGIN", question, "", options)
    truth = sql_expression(label, "The label")
    text = (
        f"SELECT CAST(({truth}) AS BOOLEAN) AS covey_truth, {call} AS covey_margin "
        f"FROM {'.'.join(quote_name(part) for part in relation.split('.'))}"
    )
    table = connection.run(text).arrow()
    truths = np.array(table["covey_truth"].to_pylist(), dtype=object)
    margins = table["covey_margin"].to_numpy(zero_copy_only=False).astype(np.float64)
    known = np.array([value is not None for value in truths], np.bool_) & np.isfinite(margins)
    found = measure(question, truths[known].astype(np.bool_), margins[known], int((~known).sum()))
    frontend = Frontend(connection, connection.dialect)
    statement = RewrittenSql([Fragment(text, SourceText(text), 0)])
    calls = frontend.find_calls(statement)
    with frontend.prepare(statement, calls, QueryAnswers(), DocumentStore()) as prepared:
        connection.calibrations[prepared.plan.calls[0].question] = found.calibration
    return found


def measure(question: str, labels: Bool, margins: Float64, left_out: int = 0) -> Reliability:
    """Learn a calibration from labels and margins, and measure it.

    Args:
        question: for the report.
        labels: (n,) bool.
        margins: (n,) float64 in nats, finite.
        left_out: for the report.

    Raises:
        InputError: fewer than two rows of a label.
    """
    for value in (True, False):
        if (labels == value).sum() < 2:
            raise InputError(
                f"Calibration needs two or more rows labelled {str(value).upper()} with an answer,"
                f" and there are {int((labels == value).sum())}."
            )
    chosen = fit(labels, margins)
    after = np.empty(len(margins))
    fold = _folds(labels)
    for number in range(_FOLDS):
        held = fold == number
        after[held] = fit(labels[~held], margins[~held]).line(margins[held])
    return Reliability(
        question,
        chosen,
        len(labels),
        left_out,
        float(labels.mean()),
        _quality(labels, margins),
        _quality(labels, after),
    )


def _folds(labels: Bool) -> Int64:
    """(n,): which fifth each row is in, both labels spread evenly."""
    fold = np.empty(len(labels), np.int64)
    for value in (True, False):
        rows = np.flatnonzero(labels == value)
        fold[rows] = np.arange(len(rows)) % _FOLDS
    return fold


def fit(labels: Bool, margins: Float64) -> Calibration:
    """Slope and intercept by Newton's method; the loss is convex, and steps are halved."""
    true, false = int(labels.sum()), int((~labels).sum())
    target = np.where(labels, (true + 1) / (true + 2), 1 / (false + 2))
    # The mean and spread of the margins are taken out, so that the steps are well scaled.
    centre, spread = float(margins.mean()), float(margins.std()) or 1.0
    x = np.stack([(margins - centre) / spread, np.ones(len(margins))], axis=1)
    line = np.array([0.0, np.log((true + 1) / (false + 1))])
    for _ in range(_STEPS):
        p = sigmoid(x @ line)
        gradient = x.T @ (p - target)
        if np.abs(gradient).max() < 1e-9 * len(margins):
            break
        curve = x.T @ (x * (p * (1 - p))[:, None]) + 1e-12 * np.eye(2)
        step = np.linalg.solve(curve, gradient)
        before, size = _loss(target, x @ line), 1.0
        while _loss(target, x @ (line - size * step)) > before and size > 1e-10:
            size /= 2
        line = line - size * step
    slope = float(line[0] / spread)
    return Calibration(slope=slope, intercept=float(line[1] - slope * centre))


def _loss(target: Float64, margins: Float64) -> float:
    """Mean negative log-likelihood of targets in [0, 1] under margins."""
    return float((np.logaddexp(0.0, margins) - target * margins).mean())


def _quality(labels: Bool, margins: Float64) -> Quality:
    p = sigmoid(margins)
    number = np.minimum((p * _BINS).astype(np.int64), _BINS - 1)
    rows = []
    for each in np.unique(number):
        inside = number == each
        rows.append((p[inside].mean(), labels[inside].mean(), inside.sum()))
    bins = np.array(rows, np.float64)
    error = float((np.abs(bins[:, 0] - bins[:, 1]) * bins[:, 2]).sum() / len(labels))
    return Quality(error, _loss(labels.astype(np.float64), margins), bins)
