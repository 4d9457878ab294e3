"""Hypothesis for all tests: the same examples every time, and no clock on a shared machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("covey", derandomize=True, deadline=None)
settings.load_profile("covey")

# Triton decides between its compiler and its interpreter when it is first imported, which
# other packages may do before a test of ours does.
os.environ["TRITON_INTERPRET"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


@pytest.fixture(scope="session")
def rates_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How fast a model runs here is measured once for all tests."""
    return tmp_path_factory.mktemp("rates")


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
