"""Calls of joins beside a lower bound: what it takes who knows every answer beforehand.

Kinds of joins, conditions of ON and WHERE, and answers that are never, seldom or mostly TRUE
are combined; the bound is the fewest answers found that still decide who is in the result.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

ROWS = {"t": 8, "p": 6}
KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"]
# How many of a hundred answers are TRUE, by the digit of a call.
SHARES = {"0": 0, "1": 15, "2": 80}
TEMPLATES = {"F": " {0}", "G": " {0}", "J": " {0} {1}", "C": ""}
DOCUMENTS = {"F": ", t.s", "G": ", p.s", "J": ", t.s, p.s", "C": ""}
PLAIN = {
    "t.k = p.k": lambda i, j: None not in (i, j) and i % 4 == j % 4,
    "t.id < 3": lambda i, j: i is not None and i < 3,
    "p.id = 3": lambda i, j: j == 3,
    "p.id IS NULL": lambda i, j: j is None,
    "t.id > 99": lambda i, j: False,
}
ON = [
    ["J2"], ["J1"], ["t.k = p.k", "J2"], ["F1", "J2"], ["J2", "G0"], ["J2", "C0"], ["t.k = p.k"],
    ["J2", "t.id > 99"],
]  # fmt: skip
WHERE = [
    ["F1"], ["F0"], ["G1"], ["C0"], ["F2", "C0"], ["t.id < 3"], ["p.id = 3"], ["p.id IS NULL"],
    ["t.id < 3", "F1"], ["t.id > 99"], ["J1"], ["p.id = 3", "F2"], ["t.k = p.k", "F2"],
]  # fmt: skip
UNKNOWN = -1
Key = tuple[object, ...]


def is_true(question: str, documents: tuple[str, ...]) -> bool:
    drawn = zlib.crc32("|".join((question, *documents)).encode()) % 100
    return drawn < SHARES[question[1]]


def text_of(name: str) -> str:
    if name in PLAIN:
        return name
    return f"AI.IF(PROMPT('{name}{TEMPLATES[name[0]]}'{DOCUMENTS[name[0]]}))"


def key_of(name: str, i: int | None, j: int | None) -> Key:
    return (name, *{"F": (i,), "G": (j,), "J": (i, j), "C": ()}[name[0]])


class Bound:
    """Who is in the result of `t JOIN p ON … WHERE …`, as far as some answers tell."""

    def __init__(self, kind: str, on: list[str], where: list[str]) -> None:
        self.kind, self.on, self.where = kind, on, where

    def all_of(self, names: list[str], i: int | None, j: int | None, known: dict[Key, int]) -> int:
        found = 1
        for name in names:
            key = (None,) if name in PLAIN else key_of(name, i, j)
            value = int(PLAIN[name](i, j)) if name in PLAIN else known.get(key, UNKNOWN)
            if value == 0 or (name not in PLAIN and None in key):
                return 0
            found = UNKNOWN if value == UNKNOWN else found
        return found

    def rows(self, known: dict[Key, int]) -> Iterator[tuple[int, int]]:
        """For each row that there may be: whether the join makes it, whether WHERE keeps it."""
        us, vs = range(ROWS["t"]), range(ROWS["p"])
        on = {(i, j): self.all_of(self.on, i, j, known) for i in us for j in vs}

        def partner(values: list[int]) -> int:
            return 1 if 1 in values else UNKNOWN if UNKNOWN in values else 0

        def none(values: list[int]) -> int:
            return {1: 0, 0: 1, UNKNOWN: UNKNOWN}[partner(values)]

        if self.kind in ("SEMI", "ANTI"):
            made = partner if self.kind == "SEMI" else none
            for i in us:
                yield made([on[i, j] for j in vs]), self.all_of(self.where, i, None, known)
            return
        for i, j in on:
            yield on[i, j], self.all_of(self.where, i, j, known)
        for i in us if self.kind in ("LEFT", "FULL") else ():
            yield none([on[i, j] for j in vs]), self.all_of(self.where, i, None, known)
        for j in vs if self.kind in ("RIGHT", "FULL") else ():
            yield none([on[i, j] for i in us]), self.all_of(self.where, None, j, known)

    def decided(self, known: dict[Key, int]) -> bool:
        return all(0 in row or UNKNOWN not in row for row in self.rows(known))

    def answers(self) -> dict[Key, int]:
        names = [name for name in (*self.on, *self.where) if name not in PLAIN]
        found = {}
        for name, i, j in itertools.product(names, range(ROWS["t"]), range(ROWS["p"])):
            key = key_of(name, i, j)
            texts = {"F": (f"t {i}",), "G": (f"p {j}",), "J": (f"t {i}", f"p {j}"), "C": ()}
            found[key] = int(is_true(name + TEMPLATES[name[0]], texts[name[0]]))
        return found

    def fewest(self) -> int:
        """Answers are left out, all of a call if possible, in every order of the calls."""
        every = self.answers()
        best = len(every)
        for order in itertools.permutations({str(key[0]) for key in every}):
            known = dict(every)
            for name, value in itertools.product(order, (1, 0)):
                parts = [[key for key in known if key[0] == name and known[key] == value]]
                while parts:
                    part = parts.pop()
                    left = {key: known.pop(key) for key in part}
                    if not self.decided(known):
                        known |= left
                        half = len(part) // 2
                        parts += [part[:half], part[half:]] if half else []
            best = min(best, len(known))
        return best


def forms(kind: str, on: list[str], where: list[str]) -> Iterator[str]:
    """The query as written, and in other words."""
    join = f"FROM t {kind} JOIN p ON {' AND '.join(map(text_of, on))}"
    texts = [text_of(name) for name in where]
    constant = [
        f"(SELECT {text})" if name[0] == "C" else text
        for name, text in zip(where, texts, strict=True)
    ]
    shown = "t.id" if kind in ("SEMI", "ANTI") else "t.id, p.id"
    yield f"SELECT {shown} {join} WHERE {' AND '.join(texts)}"
    yield f"SELECT {shown} {join} WHERE {' AND '.join(constant)}"
    if kind in ("SEMI", "ANTI"):
        word = "EXISTS" if kind == "SEMI" else "NOT EXISTS"
        inner = join.partition(" ON ")[2]
        exists = f"{word} (SELECT 1 FROM p WHERE {inner})"
        if "C0" not in on:  # Within EXISTS it has its order among the conditions there.
            yield f"SELECT t.id FROM t WHERE {' AND '.join([exists, *texts])}"
    elif not any(name[0] in "FGJ" for name in where):
        # What a model says of rows of a derived table is asked behind it.
        query = f"(SELECT t.id AS tid, t.k AS tk, p.id AS pid, p.k AS pk {join})"
        outside = " AND ".join(texts)
        for column in ("t.id", "t.k", "p.id", "p.k"):
            outside = outside.replace(column, column.replace(".", ""))
        yield f"SELECT tid, pid FROM {query} AS q WHERE {outside}"
        yield f"WITH q AS {query} SELECT tid, pid FROM q WHERE {outside}"


def combinations(kind: str) -> list[tuple[list[str], list[str]]]:
    """Some pairs of ON and WHERE."""
    found = [(on, where) for on, where in itertools.product(ON, WHERE)]
    if kind in ("SEMI", "ANTI"):
        found = [(on, w) for on, w in found if not any("p." in text_of(name) for name in w)]
    asked = [(on, w) for on, w in found if not set(on + w) <= PLAIN.keys()]
    return random.Random(kind).sample(asked, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_joins_are_few(kind: str) -> None:
    model = PlantedModel(lambda q, d: 0.9 if is_true(q, d) else 0.1)
    with covey.connect(model=model, progress=False, cache=False) as con:
        for name, rows in ROWS.items():
            ids = list(range(rows))
            keys, texts = [i % 4 for i in ids], [f"{name} {i}" for i in ids]
            con.register(name, pa.table({"id": ids, "k": keys, "s": texts}))
        for on, where in combinations(kind):
            least = Bound(kind, on, where).fewest()
            for query in dict.fromkeys(forms(kind, on, where)):
                model.calls.clear()
                con.run(query).fetchall()
                assert len(model.calls) <= 3 * max(least, 1), (len(model.calls), least, query)
