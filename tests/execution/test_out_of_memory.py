"""A device without room: the query goes on with less, or ends with its answers kept."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.engine.base import OutOfMemory
from covey.testing import PlantedModel, planted

QUERY = "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND AI.IF(PROMPT('B {0}', s)) ORDER BY id"


class Cramped(PlantedModel):
    """Has no room for more than so many prompts at a time."""

    def __init__(self, room: int, least: int = 1) -> None:
        super().__init__(self.judge, fingerprint="cramped")
        self.room, self.least = room, least
        self.open_sessions = 0

    @staticmethod
    def judge(question: str, documents: tuple[str, ...]) -> float | None:
        number = int(documents[0].split()[1])
        return None if number % 17 == 3 else (number * (3 if question[0] == "A" else 5)) % 7 / 7

    def shrink(self) -> str | None:
        if self.least > planted.PROMPTS_A_BATCH // 2:
            return None
        planted.PROMPTS_A_BATCH //= 2
        return f"batches of {planted.PROMPTS_A_BATCH} prompts"

    def session(self, documents):
        return CrampedSession(self, documents)


class CrampedSession(planted.PlantedSession):
    """Runs until it has no room, and then never again."""

    def __enter__(self):
        self._model.open_sessions += 1
        assert self._model.open_sessions == 1, "the session before must have ended"
        return super().__enter__()

    def __exit__(self, *error):
        self._model.open_sessions -= 1
        super().__exit__(*error)

    def _answer(self, ticket, batch, start):
        taken = min(planted.PROMPTS_A_BATCH, len(batch.documents) - start)
        if taken > self._model.room:
            raise OutOfMemory("The device is out of memory (planted).")
        return super()._answer(ticket, batch, start)


def run(model: PlantedModel, **options: object):
    with covey.connect(model, **options) as con:
        con.register("t", pa.table({"id": range(300), "s": [f"t {i % 250}" for i in range(300)]}))
        done = con.run(QUERY)
    return done.fetchall(), done.report


@pytest.mark.parametrize("room", [70, 20, 3])
def test_the_query_goes_on_with_less_and_gives_the_same_rows(room, monkeypatch):
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 64)
    expected, undisturbed = run(PlantedModel(Cramped.judge), cache=False)
    model = Cramped(room)
    rows, report = run(model, cache=False)
    assert rows == expected
    assert len(report.notes) == {70: 0, 20: 2, 3: 5}[room]
    assert all("went on with batches of" in note for note in report.notes)
    for ours, theirs in zip(report.operators, undisturbed.operators, strict=True):
        assert (ours.prompts, ours.true, ours.failed) == (
            theirs.prompts,
            theirs.true,
            theirs.failed,
        )
    assert report.counters.prompts == undisturbed.counters.prompts
    assert model.open_sessions == 0


def test_where_nothing_is_left_to_give_up_the_answers_are_kept(monkeypatch):
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 64)
    # The last batch of the first question has 58 prompts, which fit; then nothing does.
    with pytest.raises(covey.RunError, match=r"out of memory .* cannot use less.* are kept"):
        run(Cramped(60, least=64))
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 10)
    stopped = Cramped(60)
    run(stopped)
    again = Cramped(60)
    rows, _ = run(again)
    assert rows == run(PlantedModel(Cramped.judge), cache=False)[0]
    assert len(again.calls) < 40
