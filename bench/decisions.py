"""How good the orders are that the optimizer chooses, by planted queries.

    python bench/decisions.py [--only NAME] [--scale 1.0]

Each query has conditions whose answers are planted, so that what any order would have asked
can be counted exactly: fresh tokens and attention pairs, priced by `covey.estimate.cost`.
The order that is best of all is found by trying every one. Three runs of each query are
compared with it: with the true selectivities given, with none given (sampled), and with wrong
ones given (0.9 for what seldom passes and 0.05 for the rest), which adaptivity must notice.
The work of a run is that of every prompt it asked, samples included.

The shapes and selectivities are those of the QUAIL-B queries, scaled down, and some with
skewed lengths and conditions that go together or exclude each other.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import covey
from covey.estimate.cost import Lengths, Work, prefixes, suffixes
from covey.estimate.profile import ModelProfile, QuestionLengths
from covey.execution.ordering.chooser import NOMINAL_RATES
from covey.prompts.question import Question
from covey.testing import PlantedModel
from decision_queries import QUERIES, TABLES, Asked, Shape, Table

Bools = npt.NDArray[np.bool_]

# Tokens behind the partner of a pair, its heading among them.
_CUE = 6


def tokens(text: str) -> int:
    return (len(text) + 3) // 4


class _Measure:
    """Lengths as `raw-v1` lays prompts out: a pair's question stands once behind its anchor."""

    exact = True

    def question(self, question: Question) -> QuestionLengths:
        size = tokens(question.template)
        if question.arity > 1:
            return QuestionLengths(0, size, _CUE, 1, _CUE)
        return QuestionLengths(0, 0, size, 1, size)

    def documents(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        return np.array([tokens(text) for text in texts], dtype=np.int64)


class Judge(PlantedModel):
    """Plants the answers of one query."""

    def profile(self) -> ModelProfile:
        return ModelProfile(_Measure())


class World:
    """The tables of a query, the truth of its conditions, and what any order costs.

    Args:
        shape: the query.
        scale: of the numbers of rows.
    """

    def __init__(self, shape: Shape, scale: float = 1.0) -> None:
        self.shape = shape
        self.texts: dict[str, list[str]] = {}
        for alias, table in shape.sources.items():
            size = shape.tables.get(table, TABLES[table])
            if size.rows > 20:
                size = replace(size, rows=max(int(size.rows * scale), 20))
            self.texts[alias] = made_up(table, size)
        self.templates = {a.name: self._template(a) for a in shape.asked}
        self._by_template = {self.templates[a.name]: a for a in shape.asked}
        self.truth = [self._truth(a) for a in shape.asked]

    def _template(self, asked: Asked) -> str:
        holes = " {0}" + (" {1}" if len(asked.aliases) > 1 else "")
        return (asked.name + "?" + holes).ljust(4 * asked.tokens, ".")

    def answer(self, template: str, documents: tuple[str, ...]) -> float:
        asked = self._by_template[template]
        chance = chance_of(asked.of or asked.name, documents)
        passes = chance >= 1.0 + asked.rate if asked.rate < 0 else chance < asked.rate
        return 0.9 if passes else 0.1

    def _truth(self, asked: Asked) -> Bools:
        template = self.templates[asked.name]
        if len(asked.aliases) == 1:
            (texts,) = (self.texts[a] for a in asked.aliases)
            return np.array([self.answer(template, (t,)) > 0.5 for t in texts])
        left, right = (self.texts[a] for a in asked.aliases)
        return np.array([[self.answer(template, (x, y)) > 0.5 for y in right] for x in left])

    @property
    def same(self) -> Bools | None:
        """Which pairs of the equality's sides are equal."""
        if self.shape.equal is None:
            return None
        left, right = (np.arange(len(self.texts[a])) for a in self.shape.equal)
        return left[:, None] % len(right) == right[None, :]

    def sql(self, given: Callable[[Asked, float], float | None]) -> str:
        """The query, with selectivities as `given` says of each condition and its true rate."""
        parts = []
        for asked, truth in zip(self.shape.asked, self.truth, strict=True):
            rate = given(asked, float(truth.mean()))
            option = "" if rate is None else f", selectivity => {rate}"
            columns = ", ".join(f"{a}.s" for a in asked.aliases)
            parts.append(f"AI.IF(PROMPT('{self.templates[asked.name]}', {columns}){option})")
        if self.shape.equal is not None:
            left, right = self.shape.equal
            parts.append(f"{left}.id % {len(self.texts[right])} = {right}.id")
        sources = ", ".join(f"{table} AS {alias}" for alias, table in self.shape.sources.items())
        return f"SELECT count(*) FROM {sources} WHERE {' AND '.join(parts)}"

    def run(self, sql: str) -> Run:
        """Run it; return what it asked and decided."""
        model = Judge(lambda question, documents: self.answer(question, documents))
        with covey.connect(model=model, progress=False) as con:
            for alias, table in self.shape.sources.items():
                texts = self.texts[alias]
                con.register(table, pa.table({"id": list(range(len(texts))), "s": texts}))
            query = con.run(sql)
            rows = int(query.fetchall()[0][0])
        orders = [decision.order for decision in query.report.decisions]
        return Run(rows, self.work(model.calls), orders)

    def work(self, calls: Sequence[tuple[str, tuple[str, ...]]]) -> Work:
        """The work of prompts: every anchor once, a pair's question once an anchor."""
        ledger = Ledger()
        for template, documents in calls:
            ledger.add(template, documents)
        return ledger.work()

    def number_of(self, written: str) -> int:
        """The position of a condition by its call as written."""
        names = [written.startswith(f"AI.IF(PROMPT('{self.templates[a.name]}', "
                                    f"{', '.join(f'{x}.s' for x in a.aliases)})")
                 for a in self.shape.asked]  # fmt: skip
        return names.index(True)


@dataclass(frozen=True)
class Run:
    """What a run gave: rows, the work of its prompts, the orders it decided on."""

    rows: int
    work: Work
    orders: list[tuple[str, ...]]


class Ledger:
    """Adds up prompts as an engine computes them that forgets nothing it will need."""

    def __init__(self) -> None:
        self._prefixes: set[str] = set()
        self._instructions: set[tuple[str, str]] = set()
        self._prompts: set[tuple[str, tuple[str, ...]]] = set()
        # Lengths of what stands above, by the length of what is computed.
        self._below: dict[int, list[int]] = defaultdict(list)
        self._new: list[int] = []

    def copy(self) -> Ledger:
        other = Ledger()
        other._prefixes, other._instructions = set(self._prefixes), set(self._instructions)
        other._prompts, other._new = set(self._prompts), list(self._new)
        other._below = defaultdict(list, {k: list(v) for k, v in self._below.items()})
        return other

    def add(self, template: str, documents: tuple[str, ...]) -> None:
        if (template, documents) in self._prompts:
            return
        self._prompts.add((template, documents))
        anchor, above = documents[0], tokens(documents[0])
        if anchor not in self._prefixes:
            self._prefixes.add(anchor)
            self._new.append(above)
        size = tokens(template)
        if len(documents) == 1:
            self._below[size].append(above)
            return
        if (template, anchor) not in self._instructions:
            self._instructions.add((template, anchor))
            self._below[size].append(above)
        self._below[_CUE + tokens(documents[1])].append(above + size)

    def work(self) -> Work:
        total = prefixes(len(self._new), Lengths.of(self._new), 0.0, math.inf)
        for size, above in self._below.items():
            total += suffixes(
                len(above), Lengths.fixed(float(size)), Lengths.of(above), math.inf, resident=False
            )
        return total

    def seconds(self) -> float:
        return NOMINAL_RATES.seconds(self.work())


class Replay:
    """Counts what orders ask, by the planted truth and without running anything."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shape = world.shape

    def seconds(self, order: Sequence[int]) -> float:
        """The price of one order."""
        ledger, done = Ledger(), frozenset[int]()
        for number in order:
            self._ask(number, done, ledger)
            done |= {number}
        return ledger.seconds()

    def best(self) -> tuple[float, tuple[int, ...]]:
        """The cheapest order, after trying all; a part that is dearer already is not gone on."""
        count = len(self._shape.asked)
        found: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())]

        def go_on(order: tuple[int, ...], ledger: Ledger) -> None:
            seconds = ledger.seconds()
            if seconds >= found[0][0]:
                return
            if len(order) == count:
                found[0] = (seconds, order)
                return
            for number in range(count):
                if number not in order:
                    grown = ledger.copy()
                    self._ask(number, frozenset(order), grown)
                    go_on((*order, number), grown)

        go_on((), Ledger())
        return found[0]

    def _ask(self, number: int, done: frozenset[int], ledger: Ledger) -> None:
        """Add the prompts of one condition behind others."""
        asked, texts = self._shape.asked[number], self._world.texts
        template = self._world.templates[asked.name]
        live = self._live(done)
        if len(asked.aliases) == 1:
            (alias,) = asked.aliases
            for row in np.flatnonzero(live[alias]).tolist():
                ledger.add(template, (texts[alias][row],))
            return
        left, right = asked.aliases
        pairs = live[left][:, None] & live[right][None, :]
        for (one, other), truth in self._edges(done):
            if {one, other} == {left, right}:
                pairs &= truth if one == left else truth.T
        for x, y in zip(*(part.tolist() for part in np.nonzero(pairs)), strict=True):
            ledger.add(template, (texts[left][x], texts[right][y]))

    def _edges(self, done: frozenset[int]) -> Iterator[tuple[tuple[str, str], Bools]]:
        for number in sorted(done):
            asked = self._shape.asked[number]
            if len(asked.aliases) == 2:
                yield (asked.aliases[0], asked.aliases[1]), self._world.truth[number]
        if self._shape.equal is not None and self._world.same is not None:
            yield self._shape.equal, self._world.same

    def _live(self, done: frozenset[int]) -> dict[str, Bools]:
        """The rows of each alias that are in some row of the join of what is decided."""
        live = {alias: np.ones(len(texts), np.bool_) for alias, texts in self._world.texts.items()}
        for number in done:
            asked = self._shape.asked[number]
            if len(asked.aliases) == 1:
                live[asked.aliases[0]] &= self._world.truth[number]
        edges = list(self._edges(done))
        while True:
            before = {alias: int(rows.sum()) for alias, rows in live.items()}
            for (left, right), truth in edges:
                live[left] = live[left] & (truth & live[right][None, :]).any(axis=1)
                live[right] = live[right] & (truth & live[left][:, None]).any(axis=0)
            if not all(rows.any() for rows in live.values()):
                return {alias: np.zeros_like(rows) for alias, rows in live.items()}
            if before == {alias: int(rows.sum()) for alias, rows in live.items()}:
                return live


def chance_of(name: str, documents: tuple[str, ...]) -> float:
    """A number in [0, 1) that a question and its documents always give."""
    mixed = zlib.crc32("\0".join((name, *documents)).encode())
    return zlib.crc32(mixed.to_bytes(4, "little") + name.encode()) / 2**32


def made_up(name: str, table: Table) -> list[str]:
    """Different texts; lengths are log-normal around the mean."""
    rng = random.Random(name)
    texts = []
    for row in range(table.rows):
        center = math.log(table.tokens) - table.spread**2 / 2.0
        size = max(2, round(math.exp(rng.gauss(center, table.spread))))
        texts.append(f"{name[:2]}{row} ".ljust(4 * size, rng.choice("abcdefgh")))
    return texts


@dataclass(frozen=True)
class Score:
    """A query's costs over the best order's, and what wrong rates lose and adaptivity saves.

    Attributes:
        given, sampled, wrong: cost over the best.
        static: of the order that the wrong rates suggest, if it were kept.
    """

    name: str
    given: float
    sampled: float
    wrong: float
    static: float


def wrong_rate(rate: float) -> float:
    return 0.05 if rate >= 0.5 else 0.9


def score(shape: Shape, scale: float = 1.0) -> Score:
    """Run a query in its three forms."""
    world = World(shape, scale)
    replay = Replay(world)
    best, _ = replay.best()
    given = world.run(world.sql(lambda asked, rate: rate))
    sampled = world.run(world.sql(lambda asked, rate: None))
    wrong = world.run(world.sql(lambda asked, rate: wrong_rate(rate)))
    if not given.rows == sampled.rows == wrong.rows:
        raise SystemExit(f"{shape.name}: the rows depend on the order")
    kept = replay.seconds([world.number_of(name) for name in wrong.orders[0]])
    price = [NOMINAL_RATES.seconds(run.work) / best for run in (given, sampled, wrong)]
    return Score(shape.name, *price, kept / best)


def recovered(scores: Sequence[Score]) -> float:
    """The part of what wrong rates lose, over queries that lose at all, that was not lost."""
    losing = [s for s in scores if s.static > 1.05]
    lost = sum(s.static - 1.0 for s in losing)
    return 1.0 - sum(s.wrong - 1.0 for s in losing) / lost if losing else 1.0


def summary(scores: Sequence[Score]) -> list[str]:
    lines = []
    for name in ("given", "sampled", "wrong", "static"):
        values = [getattr(s, name) for s in scores]
        mean = statistics.geometric_mean(values)
        lines.append(f"{name:8} geometric mean {mean:.3f}, worst {max(values):.2f}")
    lines.append(f"of what wrong rates lose, {recovered(scores):.0%} is recovered")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="queries whose names begin so")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows")
    given = parser.parse_args()
    scores = []
    print(f"{'query':28} {'given':>6} {'sampled':>8} {'wrong':>6} {'static':>7}")
    for shape in QUERIES:
        if given.only and not shape.name.startswith(given.only):
            continue
        started = time.process_time()
        s = score(shape, given.scale)
        scores.append(s)
        spent = time.process_time() - started
        print(f"{s.name:28} {s.given:6.2f} {s.sampled:8.2f} {s.wrong:6.2f} {s.static:7.2f}"
              f"   {spent:.1f} s", flush=True)  # fmt: skip
    print(f"{len(scores)} queries", *summary(scores), sep="\n")


if __name__ == "__main__":
    main()
