"""What holds for all tests: how much is tried, one thread each, a cache folder of their own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from effort import EXAMPLES, KILLS, SEED, THOROUGH, scaled

# The same examples every time, but in `make fuzz`, and no clock on a shared machine.
settings.register_profile(
    "covey", derandomize=not THOROUGH, max_examples=scaled(100), deadline=None
)
settings.load_profile("covey")

# Workers of pytest-xdist share the cores, and two threads that wait for each other are slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton decides between its compiler and its interpreter when it is first imported, which
# other packages may do before a test of ours does.
os.environ["TRITON_INTERPRET"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Properties are among what `make fuzz` tries more of."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("fuzz")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: to collect garbage, as an engine does, need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With failures of `make fuzz`, how to see them again."""
    if THOROUGH and terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"The same again: make fuzz COVEY_FUZZ_SEED={SEED} COVEY_FUZZ_EXAMPLES={EXAMPLES} "
            f"COVEY_FUZZ_KILLS={KILLS}"
        )


@pytest.fixture(scope="session")
def rates_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How fast a model runs here is measured once for all tests, whichever worker has them."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "rates"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def cache_folder(
    rates_folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An answer store for each test: no test touches the user's, or another's."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "rates").symlink_to(rates_folder)
    monkeypatch.setenv("COVEY_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def interrupts_are_pythons() -> Iterator[None]:
    """A shell starts what runs in its background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
