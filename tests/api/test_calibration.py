"""Calibration from labelled rows: what it learns, where it is used, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.api.calibration import fit, measure
from covey.errors import InputError, QueryError
from covey.testing import PlantedModel

QUESTION = "Is it a complaint? {body}"
ASKED = "PROMPT('Is it a complaint? {0}', body)"


def answer(question: str, documents: tuple[str, ...]) -> float:
    """A margin that is written in the document."""
    return 1 / (1 + math.exp(-float(documents[0])))


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    with covey.connect(model=PlantedModel(answer), progress=False) as connection:
        yield connection


def labelled(rows: int, slope: float, intercept: float) -> pa.Table:
    """Margins, and labels drawn with the probabilities that a line through them gives."""
    rng = np.random.default_rng(3)
    margins = rng.normal(0.0, 2.0, rows).round(6)
    p = 1 / (1 + np.exp(-(slope * margins + intercept)))
    labels = (rng.random(rows) < p).tolist()
    bodies = [repr(m) for m in margins.tolist()]
    return pa.table({"body": bodies, "label": [*labels[:-1], None]})


def test_the_line_behind_the_labels_is_found_and_makes_probabilities_reliable(
    con: covey.Connection,
) -> None:
    found = con.calibrate(QUESTION, labelled(4001, 0.5, -1.0))
    assert (found.rows, found.left_out) == (4000, 1)
    assert found.calibration.slope == pytest.approx(0.5, abs=0.05)
    assert found.calibration.intercept == pytest.approx(-1.0, abs=0.1)
    assert found.after.error < 0.03 < found.before.error
    assert found.after.loss < found.before.loss
    assert found.after.bins[:, 2].sum() == 4000


def test_fit_is_where_the_gradient_of_platts_loss_vanishes() -> None:
    rng = np.random.default_rng(5)
    margins = rng.normal(3.0, 40.0, 60)
    labels = rng.random(60) < 0.3
    line = fit(labels, margins)
    true, false = int(labels.sum()), int((~labels).sum())
    target = np.where(labels, (true + 1) / (true + 2), 1 / (false + 2))
    p = 1 / (1 + np.exp(-(line.slope * margins + line.intercept)))
    assert abs((p - target).sum()) < 1e-5 and abs(((p - target) * margins).sum()) < 1e-3


def test_separable_labels_end_in_a_finite_line() -> None:
    margins = np.array([-3.0, -2.0, 2.0, 3.0])
    found = measure("q", margins > 0, margins)
    assert math.isfinite(found.calibration.slope) and found.calibration.slope > 0


def test_a_query_uses_what_was_learned_and_other_questions_do_not(con: covey.Connection) -> None:
    con.register("tickets", labelled(500, 0.5, -1.0))
    line = con.calibrate(QUESTION, "tickets").calibration
    rows = con.sql(
        f"SELECT body, AI.MARGIN({ASKED}), AI.MARGIN({ASKED}, calibration => 'labelled'),"
        f" AI.SCORE({ASKED}, calibration => 'labelled'), AI.IF({ASKED}, calibration => 'labelled',"
        " threshold => 0.3) FROM tickets LIMIT 20"
    ).fetchall()
    for body, plain, margin, score, truth in rows:
        assert plain == pytest.approx(float(body))
        assert margin == pytest.approx(line.slope * plain + line.intercept)
        assert score == pytest.approx(1 / (1 + math.exp(-margin)))
        assert truth == (score > 0.3)
    with pytest.raises(QueryError, match="not calibrated"):
        con.sql("SELECT AI.IF(PROMPT('Other? {0}', body), calibration => 'labelled') FROM tickets")


@pytest.mark.parametrize("kind", ["frame", "path", "mistake"])
def test_nothing_stays_registered(con: covey.Connection, kind: str, tmp_path: Path) -> None:
    data: object = labelled(100, 0.5, -1.0)
    if kind == "path":
        con.register("l", data)
        data = tmp_path / "labelled.parquet"
        con.duckdb.execute(f"COPY l TO '{data}'")
    if kind == "mistake":
        with pytest.raises(QueryError):
            con.calibrate(QUESTION, data, label="nowhere")
    else:
        con.calibrate(QUESTION, data)
    with pytest.raises(QueryError, match="covey_labelled does not exist"):
        con.sql("FROM covey_labelled")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"body": ["1", "2"], "label": [True, False]}, "two or more rows labelled TRUE"),
        ({"body": ["1"] * 4, "label": [True] * 4}, "labelled FALSE"),
        ({"text": ["1"], "label": [True]}, "body"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    con: covey.Connection, table: dict[str, list[object]], message: str
) -> None:
    with pytest.raises((InputError, QueryError), match=message):
        con.calibrate(QUESTION, pa.table(table))


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("Is it {0}?", ".0. is the same for all rows"),
        ("Is it late?", "names no column"),
        ("Is {nothing} late?", ".nothing. is no column"),
    ],
)
def test_a_question_that_names_no_column_is_refused(
    con: covey.Connection, question: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        con.calibrate(question, labelled(20, 0.5, -1.0))


def test_a_plot_is_a_png_or_names_what_it_needs(con: covey.Connection, tmp_path: Path) -> None:
    found = con.calibrate(QUESTION, labelled(200, 0.5, -1.0))
    path = tmp_path / "reliability.png"
    if find_spec("matplotlib") is None:
        with pytest.raises(InputError, match="matplotlib"):
            found.plot(path)
    else:
        found.plot(path)
        assert path.read_bytes().startswith(b"\x89PNG")
