"""How often braces in constant words are looked at; what is said of them is in tests/errors."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.errors import QueryError
from covey.sql.bind import Binder
from covey.testing import PlantedModel


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every statement that is bound as a whole."""
    found: list[str] = []
    check = Binder.check

    def counted(self: Binder, *arguments: object) -> None:
        found.append(self.edited.text)
        check(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Binder, "check", counted)
    return found


def looks(checks: list[str], braces: str, calls: int) -> int:
    """Statements bound for some calls with braces in their words."""
    with covey.connect(PlantedModel(lambda question, documents: 0.9), progress=False) as con:
        con.register("t", pa.table({"s": ["a"]}))
        checks.clear()
        items = (f"AI.IF(PROMPT('{braces} {i} {{0}}', s)) AS c{i}" for i in range(calls))
        con.sql(f"SELECT {', '.join(items)} FROM t")
        return len(checks)


def test_the_same_braces_are_looked_at_once_for_all_calls_of_a_query(checks: list[str]) -> None:
    plain = looks(checks, "none", 20)
    assert looks(checks, "{nothing}", 20) - plain == looks(checks, "{nothing}", 1) - looks(
        checks, "none", 1
    )


def test_a_text_of_many_braces_is_no_question_about_columns(checks: list[str]) -> None:
    many = " ".join(f"{{x{i}}}" for i in range(2000))
    assert looks(checks, many, 1) < 100


WORDS = ["$$Is {s} late?$$", "E'Is {s} \\'late\\'?'", "$q$Is {s} late?$q$"]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("call", ["AI.IF({})", "AI.IF('a' || {})", "AI.CLASSIFY(s, [{}, 'other'])"])
def test_texts_in_dollars_and_with_escapes_are_constant_words_too(words: str, call: str) -> None:
    model = PlantedModel(lambda question, documents: 0.9)
    with covey.connect(model, cache=False, progress=False) as con:
        con.register("t", pa.table({"s": ["a"]}))
        with pytest.raises(QueryError, match=r"\{s\} is plain text here, though s is a column"):
            con.run(f"SELECT {call.format(words)} FROM t")
        con.run("SELECT AI.IF($$Is it {late}? {0}$$) FROM t")
    assert model.calls == [("Is it {{late}}? {{0}}", ())]


def test_what_duckdb_does_not_look_at_names_no_column() -> None:
    with covey.connect(PlantedModel(lambda question, documents: 0.9), progress=False) as con:
        con.register("t", pa.table({"s": ["a"]}))
        unused = "WINDOW w AS (PARTITION BY AI.IF(PROMPT('{{{}}} {{0}}', s)))"
        assert con.sql(f"SELECT s FROM t {unused.format('nothing')}").fetchall() == [("a",)]
        grouped = con.sql("SELECT 1 AS c FROM t GROUP BY s || 'x' HAVING AI.IF('Is {nothing} so?')")
        assert grouped.fetchall() == [(1,)]
        with pytest.raises(QueryError, match="s is a column"):
            con.sql(f"SELECT count(*) OVER w FROM t {unused.format('s')}")
