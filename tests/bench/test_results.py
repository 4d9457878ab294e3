"""Runs are recorded, resumed, forced and reported."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.corpora import write_checkpoint
from covey.errors import InputError
from suite.answers import sample
from suite.choose import by_interest, chosen
from suite.compare import MARGIN_BINS, agreement_of, comparison, side
from suite.records import Record, Run, environment, read_records, record_path, write_record
from suite.report import write_report
from suite.run import Pace, Settings, Streamed, Suite
from suite.summary import summarise

COMMITTED = Path(__file__).parents[2] / "bench" / "results"
SMOKE = Settings(scale=0.0, check=True)


def silent(line: str) -> None:
    """Print nothing."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of some queries at the smoke size."""
    folder = tmp_path_factory.mktemp("planted")
    settings = replace(SMOKE, repeats=2)
    Suite(settings, folder, silent).run(chosen(["IMDB-3", "FEV-5", "REL-AGENT-2"]))
    return folder


@pytest.mark.parametrize("name", ["cpu-smoke", "planted-0.01", "h200-0.01", "h200-0.1"])
def test_the_report_follows_from_the_committed_raw_files(name: str, tmp_path: Path) -> None:
    committed, folder = COMMITTED / name, tmp_path / "again"
    folder.mkdir()
    (folder / "raw").symlink_to(committed / "raw")
    written = write_report(folder, plots=False)
    assert written.read_text() == (committed / "report.md").read_text()


def test_a_record_tells_what_ran_and_on_what(planted: Path) -> None:
    record = next(r for r in read_records(planted) if r.query == "IMDB-3")
    assert record.rows_equal is True and record.problem is None
    assert record.settings["seed"] == SMOKE.seed and record.settings["truth"] == "measured"
    assert {"python", "commit", "packages", "cpus"} <= record.environment.keys()
    assert 0 < record.minimum < record.requested
    assert record.runs[0].prompts and record.runs[0].digest and record.runs[0].peak_bytes


def test_a_copy_without_history_is_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_COMMIT", "abc123")
    assert environment()["commit"] == "abc123"


def test_a_query_that_has_a_record_is_not_run_again(planted: Path) -> None:
    said: list[str] = []
    suite = Suite(replace(SMOKE, repeats=2), planted, said.append)
    suite.run(chosen(["IMDB-3"]))
    assert said == []
    changed = Suite(SMOKE, planted, said.append)
    changed.run(chosen(["REL-AGENT-2"]))
    suite.run(chosen(["REL-AGENT-2"]))
    assert len(said) == 2


def test_forced_answers_steer_and_the_models_own_are_kept(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "checkpoint")
    settings = Settings(model=str(model), scale=0.0, check=True)
    pairs, record = Suite(settings, tmp_path, silent).run(chosen(["BIO-2", "BIO-3"]))
    run = pairs.runs[0]
    # One operator leaves the planner no choice: its prompts are those of the suite's count.
    assert pairs.minimum == run.minimum == run.fresh and run.requested == pairs.requested
    run = record.runs[0]
    assert record.rows_equal is True
    assert record.sol_seconds is not None and run.device_seconds is not None
    with np.load(tmp_path / "answers" / "covey.BIO-3.npz") as said:
        judged = {str(said[f"question{i}"]): said[f"scores{i}"] for i in range(2)}
    assert sum(len(scores) for scores in judged.values()) == run.prompts
    # What is kept is the model's: planted margins have one of two values for pairs.
    assert len({float(s) for scores in judged.values() for s in scores[:, 0]}) > 10


def test_no_query_is_started_that_would_not_end_in_time(tmp_path: Path) -> None:
    said: list[str] = []
    suite = Suite(SMOKE, tmp_path, said.append)
    assert suite.run(chosen(["IMDB-1", "FEV-5"]), seconds=1e-9) == []
    assert said == [
        "Not started within 1e-09 s: IMDB-1, FEV-5. The same command again goes on with them."
    ]
    assert len(suite.run(chosen(["IMDB-1"]), seconds=3600.0)) == 1


def test_the_pace_of_queries_is_learned() -> None:
    pace = Pace()
    assert pace.expected(None) == 0.0 and pace.expected(2.0) == 6.0
    pace.add(1.0, [1.5, 2.5])
    pace.add(None, [100.0])
    assert pace.expected(3.0) == 6.0


def test_rows_are_counted_as_they_come_and_kept_while_they_are_few() -> None:
    table = pa.table({"a": range(10)})
    few = Streamed(iter(table.to_batches(4)), 10)
    assert few.rows == 10 and few.table == table and few.answered is not None
    answers, read = iter([3, 5, 5]), []
    batches = (read.append(time.perf_counter()) or batch for batch in table.to_batches(4))
    steps = Streamed(batches, 9, lambda: next(answers))
    assert steps.answered is not None and read[1] < steps.answered < read[2]
    many = Streamed(iter(table.to_batches(4)), 9)
    assert many.rows == 10 and many.table is None
    none = Streamed(iter([]), 9)
    assert none.rows == 0 and none.table is None and none.answered is None


def test_what_ran_before_the_measured_queries_is_told(tmp_path: Path) -> None:
    suite = Suite(SMOKE, tmp_path, silent)
    suite.warm_up()
    (record,) = suite.run(chosen(["FEV-10"]))
    assert record.warm_seconds is not None and record.warm_seconds > 0


def test_what_fails_unexpectedly_is_written_down_and_the_next_query_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(SMOKE, tmp_path, silent)

    def fails(self: object, template: str, ids: np.ndarray) -> None:
        raise ZeroDivisionError("lost the device")

    with monkeypatch.context() as patched:
        patched.setattr("suite.oracle.DocumentRows.of", fails)
        (record,) = suite.run(chosen(["FEV-1"]))
    assert record.problem == "ZeroDivisionError: lost the device" and not record.runs
    (record,) = suite.run(chosen(["FEV-1"]))
    assert record.problem is None and record.runs


def test_samples_of_answers_are_those_of_any_order() -> None:
    rng = np.random.default_rng(0)
    rows = np.stack(np.meshgrid(np.arange(40), np.arange(30), indexing="ij"), -1).reshape(-1, 2)
    order = rng.permutation(len(rows))
    kept = {tuple(row) for row in rows[sample(rows, 100)].tolist()}
    assert len(kept) == 100
    assert {tuple(row) for row in rows[order][sample(rows[order], 100)].tolist()} == kept
    # It spreads over both sides.
    assert len({a for a, _ in kept}) > 30 and len({b for _, b in kept}) > 24
    assert sample(rows[:50], 100).tolist() == list(range(50))


def test_the_most_telling_queries_run_first() -> None:
    found = [plan.id for plan in by_interest(chosen(["published", "labels", "BIO-4"]))]
    assert len(found) == len(set(found)) == 36
    assert found[:3] == ["IMDB-1", "IMDB-2", "IMDB-4"] and found.index("BIO-4") < 9
    assert found[-1] == "AGENT-5" and set(found[-5:-2]) == {"LEP-3", "LEP-2", "AGENT-1"}


def test_summary_of_repeated_runs() -> None:
    runs = [
        Run(seconds=2.0, device_seconds=1.5, host_seconds=0.25, fresh=1_100),
        Run(seconds=1.0, device_seconds=0.5, host_seconds=0.25, fresh=1_000),
        Run(seconds=4.0, device_seconds=0.5, host_seconds=0.25, fresh=1_000),
    ]
    record = Record("BIO-1", "x", {}, {}, 3.0, 6_000, 1_000, 0.5, price_per_hour=3.6, runs=runs)
    (row,) = summarise([record])
    assert (row.seconds, row.low, row.high) == (2.0, 1.0, 4.0)
    assert row.tokens_per_minute == 180_000 and row.sol_ratio == 4.0
    assert row.recomputed_share == pytest.approx(100 / 1_100)
    assert row.other_seconds == pytest.approx(0.25) and row.idle_share == pytest.approx(0.25)
    assert row.dollars == pytest.approx(0.002)


def on_gpu(query: str, scale: float, *runs: Run, engine: str = "covey") -> Record:
    settings = {"model": "/checkpoint", "scale": scale}
    record = Record(query, engine, settings, {"gpu": "NVIDIA H200", "cpus": 32}, 9.0)
    limits = {"budget": 65_536, "slots": 900_000}
    return replace(record, requested=6_000_000, runs=list(runs), limits=limits, warm_seconds=4.0)


def test_the_report_puts_published_seconds_beside_ours(tmp_path: Path) -> None:
    run = Run(seconds=10.0, asked_seconds=7.215, fresh=1_000_000, prompts=5_000)
    for query, scale in (("IMDB-1", 0.1), ("FEV-10", 0.1), ("BIO-1", 0.01)):
        write_record(tmp_path, on_gpu(query, scale, run))
    text = write_report(tmp_path, plots=False).read_text()
    assert "| IMDB-1 | covey | NVIDIA H200 | 10.00 | 7.21 | 14.43 | 2.00 | 17.52 | 2.43 |" in text
    assert "| BIO-1 | 0.01 | covey | 10.00 |" in text  # in the table, and not beside the published
    assert "| BIO-1 | covey | NVIDIA H200" not in text
    assert "covey, 2 queries, 14.4 s until asked. Published: 16.1 s" in text
    assert "geometric mean of the ratios 0.68" in text
    assert "one H100" in text and "other texts" in text
    assert "Prompts without an answer" not in text
    write_record(tmp_path, on_gpu("FEV-1", 0.1, replace(run, failed=1_200)))
    assert "- FEV-1, covey: 1,200" in write_report(tmp_path, plots=False).read_text()
    assert "9.0 + 4.0 warm-up" in text and "budget 65,536, slots 900,000" in text


def test_the_report_tells_tokens_a_minute_and_labels(tmp_path: Path) -> None:
    run = Run(seconds=7.0, asked_seconds=6.0, fresh=100_000, prompts=200_000)
    write_record(tmp_path, replace(on_gpu("BIO-4", 0.1, run), requested=1_000_000_000))
    slower = replace(run, seconds=8.0)
    write_record(tmp_path, on_gpu("FEV-11", 0.1, run, slower))
    text = write_report(tmp_path, plots=False).read_text()
    assert "10.00 billion requested tokens a minute (1,000,000,000 in 6.00 s; 200,000" in text
    assert "| FEV-11 | topic (11) | 0.1 | covey | 7.00 | 7.00 to 8.00 | 200,000 | 100,000 |" in text
    assert "Beside what was published" not in text


def test_engines_are_compared_over_what_each_two_of_them_ran(tmp_path: Path) -> None:
    for engine, seconds in (("covey", 1.0), ("quail", 2.0), ("vllm", 4.0)):
        for query in ("IMDB-1", "FEV-1", "BIO-1")[: 2 if engine == "vllm" else 3]:
            write_record(tmp_path, on_gpu(query, 0.01, Run(seconds=seconds), engine=engine))
    text = write_report(tmp_path, plots=False).read_text()
    assert "Over the 2 queries that every engine ran" in text
    assert "| all | 2 | 2.00 | 4.00 | 8.00 |" in text
    assert "quail takes 2.00 times as long as covey over 3 queries" in text
    assert "vllm takes 2.00 times as long as quail over 2 queries" in text


def test_agreement_is_counted_by_margin(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    for path, scores in ((one, [[0.1], [-3.0], [5.0]]), (other, [[-0.2], [-1.0], [2.0]])):
        rows = np.array([[0], [1], [2]])
        order = [2, 0, 1] if path is other else [0, 1, 2]
        scored = np.array(scores)[order]
        np.savez(path, question0=np.array("q"), rows0=rows[order], scores0=scored)
    found = agreement_of({"BIO-1": one}, {"BIO-1": other, "BIO-2": one})
    assert sum(found.prompts) == 3 and sum(found.equal) == 2
    assert (found.prompts[0], found.equal[0]) == (1, 0)
    assert len(found.prompts) == len(MARGIN_BINS)


def test_two_folders_are_compared(planted: Path, tmp_path: Path) -> None:
    for record in read_records(planted):
        run = record.runs[0]
        write_record(tmp_path, replace(record, runs=[run]))
        slower = replace(run, seconds=3 * run.seconds)
        write_record(tmp_path, replace(record, engine="peer", runs=[slower]))
    text = comparison(side(f"{tmp_path}:covey-planted"), side(f"{tmp_path}:peer"))
    assert "Geometric mean of the ratios: 3.00." in text and "| equal |" in text
    with pytest.raises(InputError, match="holds no engine 'x': name one of covey-planted, peer"):
        side(f"{tmp_path}:x")


def test_damaged_and_missing_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no result files"):
        read_records(tmp_path)
    path = record_path(tmp_path, "covey", "BIO-1")
    path.parent.mkdir()
    path.write_text(json.dumps({"schema": 99}))
    with pytest.raises(InputError, match="schema is not 1"):
        read_records(tmp_path)


def test_unknown_queries_are_named() -> None:
    with pytest.raises(InputError, match="a family: IMDB, BIO"):
        chosen(["IMDB-99"])
    assert [plan.id for plan in chosen(["lep"])] == [f"LEP-{i}" for i in range(1, 7)]


def test_the_csv_has_every_figure(planted: Path) -> None:
    write_report(planted, plots=False)
    with (planted / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["query"] for row in rows] == ["IMDB-3", "FEV-5", "REL-AGENT-2"]
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_all_fifty_queries_have_duckdbs_rows_in_the_committed_run() -> None:
    records = read_records(COMMITTED / "planted-0.01")
    assert len(records) == 50 and all(record.rows_equal for record in records)
    assert {record.settings["scale"] for record in records} == {0.01}
