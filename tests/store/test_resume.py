"""A query that is killed goes on where it was, and ends with the same rows."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore
from effort import KILLS, SEED
from store.victim import TEXTS, answer, finish, start

FAILING = sum(
    answer(question, (f"ticket {i}",)) is None
    for question in ("How late? {0}", "Refund? {0}")
    for i in range(TEXTS)
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[list[object]]]:
    return finish(start(tmp_path_factory.mktemp("undisturbed")))


def stored(folder: Path) -> int:
    return int(AnswerStore(CacheOptions(folder)).summary()["answers"])


@pytest.mark.fuzz
def test_kills_at_random_moments_lose_nothing_that_was_committed(undisturbed, tmp_path):
    chance = random.Random(SEED)
    before, kills, longest = 0, 0, 0.6
    while kills < KILLS or not before:
        process = start(tmp_path, seconds=0.0004)
        time.sleep(chance.uniform(0.0, longest))
        process.kill()
        process.communicate()
        assert stored(tmp_path) >= before, "an answer that was committed is gone"
        before = stored(tmp_path)
        kills += 1
        if not before:  # a busy machine: nothing is shown until a kill comes after a commit
            longest *= 1.5
            assert longest < 60, "the query commits nothing"
    asked, rows = finish(start(tmp_path))
    assert rows == undisturbed[1]
    # Failed prompts are asked again, the others are not.
    assert asked <= undisturbed[0] - before + FAILING
    again, rows = finish(start(tmp_path))
    assert rows == undisturbed[1]
    assert again <= FAILING


def test_two_processes_share_a_store(undisturbed, tmp_path):
    processes = [start(tmp_path, seconds=0.0002) for _ in range(2)]
    for process in processes:
        assert finish(process)[1] == undisturbed[1]
    asked, rows = finish(start(tmp_path))
    assert rows == undisturbed[1]
    assert asked <= FAILING
