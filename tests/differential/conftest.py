"""Covey beside the oracle, once for the tests of a module."""

from __future__ import annotations

import pytest

from differential.harness import Pair
from differential.sources import Files
from differential.statements import Statements


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("parquet"))


@pytest.fixture(scope="module")
def statements() -> Statements:
    return Statements()
