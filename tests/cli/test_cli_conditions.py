"""The ordinary conditions of a command line: closed, full and broken streams, signals, memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore

HERE = Path(__file__).parent
COVEY = f'"{sys.executable}" -m covey'
MANY = "SELECT * FROM range(100000)"
ASKING = (
    "SELECT AI.IF(PROMPT('Refund? {0}', 'ticket ' || range)) AS refund FROM range(2000) "
    "WHERE range >= 0"
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")


def shell(line: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line of bash."""
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("covey", COVEY, 1)],
        cwd=folder,
        capture_output=True,
        timeout=100,
        check=False,
    )
    out, err = ended.stdout.decode(), ended.stderr.decode()
    assert "Traceback" not in err and "bug in Covey" not in err and "ignored" not in err, err
    return ended.returncode, out, err


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("covey query 'SELECT 1' > /dev/full", 2, "No space left"),
        ("covey models > /dev/full", 1, "No space left"),
        ("covey --help > /dev/full", 1, "No space left"),
        ("covey --version > /dev/full", 1, "No space left"),
        ("covey query 'SELECT 1' >&-", 2, "Standard output cannot be written"),
        ("covey models >&-", 1, "Standard output cannot be written"),
        ("covey query 'SELECT 1' -o r.csv >&- <&-", 0, "1 rows"),
        ("covey query 'SELECT 1' 2>&-", 0, ""),
        ("covey query 'SELECT 1' 2> /dev/full", 0, ""),
        ("covey query - <&-", 2, "holds no SQL"),
        (f"covey query '{MANY}' -f csv | head -1", 141, ""),
        ("covey models | true", 141, ""),
        (f"mkfifo p; (head -1 p > one &); covey query '{MANY}' -f csv -o p", 141, ""),
        ("ulimit -v 1500000; covey query \"SELECT AI.IF('x')\"", 1, "not enough memory"),
        ("covey query 'SELECT 1' -o /dev/full -f csv", 2, "No space left"),
        ("ln -s b a; ln -s a b; covey query 'SELECT 1' -f csv -o a", 2, "symbolic links"),
        ("covey query 'SELECT 1' -o /dev/fd/9 -f csv", 2, "cannot be opened"),
        ("mkfifo p; covey query 'SELECT 1' -d p", 2, "no file"),
        ("unset HOME COVEY_CACHE; covey query 'SELECT 1'", 0, ""),
        ("COVEY_CACHE=/dev/null covey cache show", 1, "/dev/null"),
        ("covey query \"COPY (SELECT 1) TO '/dev/full'\"", 1, "query: Could not write file"),
        ("mkdir $'\\xff'; TMPDIR=$'\\xff' covey query 'SELECT 1' -f csv", 2, "is no UTF-8"),
        ("mkdir $'\\xff'; TMPDIR=$'\\xff' covey cache export a.csv", 1, "is no UTF-8"),
        ("covey cache clear --older-than nan", 2, "not nan"),
        ("covey cache clear --older-than 1e300", 0, ""),
        ("covey cache export no/a.csv", 2, "does not exist"),
        ("covey cache export /dev/full", 2, "neither .parquet nor .csv"),
    ],
)
def test_a_condition_ends_with_its_code_and_one_message(
    line: str, code: int, words: str, tmp_path: Path
) -> None:
    found, _, err = shell(line, tmp_path)
    assert (found, words in err) == (code, True), err
    assert err.count("\n") <= 1


def test_a_file_that_stops_growing_is_an_error_and_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("old")
    line = f"trap '' XFSZ; ulimit -f 100; covey query '{MANY}' -o r.csv"
    code, _, err = shell(line, tmp_path)
    assert code == 1 and "File too large" in err
    assert (tmp_path / "r.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_a_stream_that_is_open_is_added_to(tmp_path: Path) -> None:
    line = "(echo first; covey query 'SELECT 1 AS a' -f csv -o /dev/stdout; echo last) > r"
    assert shell(line, tmp_path)[0] == 0
    assert (tmp_path / "r").read_text() == "first\na\n1\nlast\n"


def test_what_a_killed_process_left_goes_with_the_next_result(tmp_path: Path) -> None:
    left = tmp_path / ".r.csv.4194304.partial"
    kept = tmp_path / ".r.csv.notes.partial"
    left.touch()
    kept.touch()
    assert shell("covey query 'SELECT 1' -o r.csv", tmp_path)[0] == 0
    assert not left.exists() and kept.exists()


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_arguments_are_utf_8_whatever_the_locale(locale: str, tmp_path: Path) -> None:
    line = f"export LC_ALL={locale} PYTHONUTF8=0 PYTHONCOERCECLOCALE=0; "
    assert shell(line + "covey query \"SELECT 'Öl' AS a\" -f csv", tmp_path)[1] == "a\nÖl\n"
    code, _, err = shell(line + "covey query $'SELECT \\xff'", tmp_path)
    assert code == 2 and "not UTF-8" in err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_a_query_in_good_order(
    number: int, code: int, tmp_path: Path, cache_folder: Path
) -> None:
    command = [sys.executable, HERE / "planted_command.py", "query", ASKING, "-o", "r.csv"]
    # A shell starts what runs in its background with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    assert process.stderr.readline() == "asked\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "The answers so far are kept" in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())
    assert AnswerStore(CacheOptions()).summary()["answers"] >= 10


def test_a_signal_that_meets_an_exec_gives_its_own_code(tmp_path: Path) -> None:
    """Python remembers that an `exec` was interrupted, and ends `python -m` with 130."""
    (tmp_path / "meets.py").write_text(
        "import os, signal, covey.cli.main, covey.cli.app\n"
        "def meets(*words):\n"
        "    with covey.cli.guard.in_good_order():\n"
        "        exec('os.kill(os.getpid(), signal.SIGTERM)')\n"
        "        raise AssertionError\n"
        "covey.cli.app.Commands._run = meets\n"
        "covey.cli.main.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "meets"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (143, b"Stopped.\n")


@pytest.mark.parametrize("at", range(0, 1000, 200))
def test_an_interrupt_at_any_moment_gives_no_traceback(at: int, tmp_path: Path) -> None:
    # The first 30 ms are Python's own.
    line = (
        f"covey query '{MANY}' -f csv -o r.csv & sleep {0.03 + at / 1000}; kill -TERM $!; wait $!"
    )
    code, _, _ = shell(line, tmp_path)
    assert code in (0, 143)
    assert not list(tmp_path.glob(".*"))
