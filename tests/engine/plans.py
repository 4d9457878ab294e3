"""Random queries for a session, and what they should give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
from hypothesis import strategies as st

from covey.engine.base import Answers, PromptBatch
from covey.engine.limits import Limits
from covey.engine.session import LocalSession
from covey.models.spec import ModelSpec, WeightDtype
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import Role
from covey.prompts.question import Example, Label, Method, Question, QuestionKind
from engine.symbolic import LAYOUT, CharEncoder, SymbolicRunner, logit, margin
from forest.brute import minimum_tokens, prefixes
from kv_cache.books import check_books

SPEC = ModelSpec(
    architecture="llama", layers=1, hidden=4, heads=1, kv_heads=1, d_head=4, ffn=4, vocab=256,
    context=10_000, rope_theta=1e4, rope_scaling=None, norm_eps=1e-5, qk_norm=False,
    tied_head=True, bos=None, weight_dtype=WeightDtype.FLOAT32,
)  # fmt: skip


def judge(template: str, arity: int, anchor: int = 0) -> Question:
    return Question(QuestionKind.JUDGE, template, arity, anchor=anchor)


LABELS = tuple(map(Label, ("ab", "a", "b", "abc", "bca", "abd", "c")))


def classify(arity: int, count: int, method: Method | None = None, **more: Any) -> Question:
    return Question(
        QuestionKind.CLASSIFY, "q", arity, LABELS[:count], arity - 1, method=method, **more
    )


EXAMPLES = (Example(("ba",), "TRUE"), Example(("a",), "FALSE"))
# Read in one pass, each token once.
TREES = (
    classify(1, 7, full=True),
    classify(1, 3, Method.TRIE),
    classify(2, 6, Method.TRIE),
    classify(1, 5, Method.LETTERS),
    replace(classify(1, 4, full=True), examples=(Example(("bb",), "a"),)),
    Question(QuestionKind.EACH, "q", 1, LABELS[:4]),
    Question(QuestionKind.EACH, "q", 2, LABELS[:3]),
    Question(QuestionKind.JUDGE, "ab? {0}", 1, examples=EXAMPLES),
)
STEPS = (classify(1, 7, Method.STEPWISE), classify(2, 6, Method.STEPWISE), classify(1, 6))

QUESTIONS = (
    judge("ab? {0}", 1),
    judge("abc? {0}", 1),
    judge("z {0}", 1),
    judge("{0} m {1}", 2),
    judge("{0} m {1}", 2, anchor=1),
    judge("{0} n {1}", 2),
    judge("{0} {1} {2}", 3, anchor=1),
    judge("k", 0),
)


@dataclass
class Ticket:
    """A batch to submit, and when: after so many deliveries."""

    question: Question
    rows: list[tuple[int, ...]]
    reads: float
    after: int
    release: list[int] = field(default_factory=list)


@dataclass
class Plan:
    texts: list[str]
    tickets: list[Ticket]
    limits: Limits


def prompt_parts(question: Question, texts: tuple[str, ...]) -> tuple[str, str, str]:
    """Preamble, shared prefix and suffix of a prompt, by the definition in `engine.minimum`."""
    parts = LAYOUT.parts(question)
    words = [part.text if part.document is None else texts[part.document] for part in parts]
    if question.arity == 0:
        return "", "", "".join(words)
    anchor = next(i for i, part in enumerate(parts) if part.role is Role.DOCUMENT)
    if question.arity == 1:
        judged, tail = LAYOUT.separator + LAYOUT.judge, words[-1][:-1]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(judged, tail, strict=False))
        preamble = "".join(left for left, _ in same)
        return words[0], "".join(words[1:-1]) + preamble, words[-1].removeprefix(preamble)
    before = [part.role in (Role.INSTRUCTION, Role.HEADING) for part in parts]
    shared_prefix = next(i for i, fixed in enumerate(before) if i > anchor and not fixed)
    return words[0], "".join(words[1:shared_prefix]), "".join(words[shared_prefix:])


@cache
def endings(question: Question) -> list[str]:
    """What is read behind a prompt: its answer, label by label, or where labels part."""
    if question.kind is QuestionKind.JUDGE:
        return [""]
    if question.kind is QuestionKind.EACH:
        return list(LAYOUT.endings(question))
    runs = [text + "\n" for text in LAYOUT.answers(question)]
    paths = {run[:i] for run in runs for i in range(len(run))}
    return [p for p in paths if len({r[: len(p) + 1] for r in runs if r.startswith(p)}) > 1]


def expected_margin(question: Question, texts: tuple[str, ...]) -> float:
    return margin([ord(c) for c in "".join(prompt_parts(question, texts))])


@cache
def choices(question: Question) -> list[list[tuple[str, str, frozenset[str]]]]:
    """For each label: what stands before each of its choices, its token, and all tokens."""
    runs = [text + "\n" for text in LAYOUT.answers(question)]
    found = []
    for run in runs:
        places = []
        for place, token in enumerate(run):
            others = frozenset(r[place] for r in runs if r[:place] == run[:place])
            if len(others) > 1:
                places.append((run[:place], token, others))
        found.append(places)
    return found


def expected_scores(question: Question, texts: tuple[str, ...]) -> list[float]:
    """The scores of a prompt, one label and one token at a time."""
    prompt = [ord(c) for c in "".join(prompt_parts(question, texts))]
    if question.kind is not QuestionKind.CLASSIFY:
        return [margin([*prompt, *map(ord, ending)]) for ending in endings(question)]
    found = []
    for places in choices(question):
        total = 0.0
        for before, token, others in places:
            above = [*prompt, *map(ord, before)]
            values = {other: logit(above, ord(other)) for other in others}
            total += values[token] - np.logaddexp.reduce(list(values.values()))
        found.append(float(total))
    best = int(np.argmax(found))
    return found if question.full else [best, found[best]]


def brute_minimum(plan: Plan) -> int:
    """The definition of the minimum, by sets of prefixes."""
    shared_prefixes: set[tuple[int, ...]] = set()
    preambles: set[str] = set()
    total = 0
    for ticket in plan.tickets:
        suffixes: dict[str, list[list[int]]] = {}
        behind = endings(ticket.question)
        for row in ticket.rows:
            texts = tuple(plan.texts[i] for i in row)
            preamble, shared_prefix, suffix = prompt_parts(ticket.question, texts)
            longest = max(map(len, behind))
            if sum(map(len, (preamble, shared_prefix, suffix))) + longest > plan.limits.context:
                continue
            preambles |= {preamble}
            shared_prefixes |= prefixes([[ord(c) for c in shared_prefix]])
            runs = [[ord(c) for c in suffix + ending] for ending in behind]
            suffixes.setdefault(shared_prefix, []).extend(runs)
        total += sum(minimum_tokens(runs) for runs in suffixes.values())
    return total + len(shared_prefixes) + sum(map(len, preambles))


@st.composite
def documents(draw: st.DrawFn) -> list[str]:
    """Texts that share preambles, contain each other, repeat, are short, are empty."""
    texts = draw(st.lists(st.text("ab", max_size=4), min_size=1, max_size=3))
    for _ in range(draw(st.integers(0, 7))):
        text = draw(st.sampled_from(texts)) + draw(st.text("abc", max_size=5))
        texts.append(text[draw(st.integers(0, 2)) :])
    return list(dict.fromkeys(texts))


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    large_cache: bool = False,
    context: bool = True,
    exact: bool = False,
    steps: bool = True,
) -> Plan:
    texts = draw(documents())
    tickets: list[Ticket] = []
    asked = (*QUESTIONS, *TREES, *(STEPS if steps and not exact else ()))
    for _ in range(draw(st.integers(1, 5))):
        question = draw(st.sampled_from(asked))
        ids = st.integers(0, len(texts) - 1)
        if question.arity == 0:
            rows = [()]
        elif draw(st.booleans()):
            some = draw(st.lists(st.sets(ids, min_size=1), min_size=question.arity,
                                 max_size=question.arity))  # fmt: skip
            grid = np.meshgrid(*[sorted(s) for s in some], indexing="ij")
            rows = [tuple(r) for r in np.stack([g.ravel() for g in grid], axis=1).tolist()]
        else:
            rows = draw(st.lists(st.tuples(*[ids] * question.arity), max_size=12, unique=True))
        reads = 1.0 if large_cache else draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
        release = [] if large_cache else draw(st.lists(ids, max_size=3))
        tickets.append(Ticket(question, rows, reads, draw(st.integers(0, 4)), release))
    slots = 100_000 if large_cache else draw(st.integers(3, 120))
    limits = Limits(
        context=draw(st.sampled_from([20, 30, 10_000])) if context else 10_000,
        max_batched_tokens=draw(st.sampled_from([1, 2, 3, 5, 8, 16, 40, 100_000])),
        slots=slots,
        node_tokens=0 if exact else draw(st.sampled_from([0, 0, 1, 4])),
        job_tokens=1_000_000 if exact else draw(st.sampled_from([7, 1_000_000])),
        spill_bytes=draw(st.sampled_from([0, 1 << 20])),
        in_flight=draw(st.integers(1, 2)),
    )
    return Plan(texts, sorted(tickets, key=lambda t: t.after), limits)


@st.composite
def flows(draw: st.DrawFn) -> Plan:
    """Batches of rows, each through filter, filter and join, in a KV cache that is short."""
    texts = draw(st.lists(st.text("ab", min_size=1, max_size=12), min_size=4, max_size=14))
    texts = list(dict.fromkeys(texts))
    partners = draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=4, unique=True))
    tickets: list[Ticket] = []
    for start in range(0, len(texts), 5):
        rows = list(range(start, min(start + 5, len(texts))))
        after = start // 5
        for number, question in enumerate((QUESTIONS[0], QUESTIONS[1], QUESTIONS[3])):
            if question.arity == 2:
                asked = [(row, partner) for row in rows for partner in partners]
            else:
                asked = [(row,) for row in rows]
            tickets.append(Ticket(question, asked, 2.0 - number, after + number))
            rows = [row for row in rows if draw(st.integers(0, 3))]
    slots = draw(st.integers(30, 110))
    budget = draw(st.sampled_from([4, 9, 20, 60]))
    limits = Limits(10_000, budget, slots, in_flight=draw(st.integers(1, 2)))
    return Plan(texts, sorted(tickets, key=lambda t: t.after), limits)


class Run:
    """One session over a plan, audited at every step."""

    def __init__(self, plan: Plan, fail_at: int | None = None) -> None:
        self.plan = plan
        self.store = DocumentStore()
        self.ids = self.store.add(plan.texts)
        self.runner = SymbolicRunner(plan.limits.slots, fail_at)
        self.closed = 0
        self.found: dict[tuple[int, int], list[float]] = {}
        self.errors: dict[tuple[int, int], str] = {}
        self.tickets: list[Ticket] = []
        self.session = LocalSession(
            self.store, self.runner, SPEC, CharEncoder(), LAYOUT, plan.limits, self._close
        )

    def _close(self) -> None:
        self.closed += 1

    def deliveries(self, stop: Callable[[int], bool] = lambda count: False) -> Iterator[int]:
        """Run the plan; yields after each delivery and checks the KV cache's books."""
        waiting = list(self.plan.tickets)
        count = 0
        while True:
            self._submit(waiting, count)
            for answers in self.session.run():
                count += 1
                self._take(answers)
                check_books(self.session._tree)
                self._submit(waiting, count)
                yield count
                if stop(count):
                    break  # drop the iterator, take another
            else:
                if not waiting:
                    return
                count = max(count + 1, waiting[0].after)

    def _submit(self, waiting: list[Ticket], count: int) -> None:
        while waiting and waiting[0].after <= count:
            ticket = waiting.pop(0)
            rows = np.array(ticket.rows, dtype=np.int64).reshape(
                len(ticket.rows), ticket.question.arity
            )
            self.session.release(self.ids[ticket.release])
            number = self.session.submit(PromptBatch(ticket.question, self.ids[rows], ticket.reads))
            assert number == len(self.tickets)
            self.tickets.append(ticket)

    def _take(self, answers: Answers) -> None:
        for row, scores in zip(answers.rows.tolist(), answers.scores.tolist(), strict=True):
            key = (answers.ticket, row)
            assert key not in self.found, f"row {row} of ticket {answers.ticket} came twice"
            self.found[key] = scores
        self.errors |= {(answers.ticket, row): e for row, e in answers.errors.items()}

    def check_answers(self) -> None:
        """Every row has its answer, and the right one."""
        rows = {(n, i) for n, t in enumerate(self.tickets) for i in range(len(t.rows))}
        assert rows == set(self.found)
        failed = requested = 0
        for (number, row), scores in self.found.items():
            ticket = self.tickets[number]
            texts = tuple(self.plan.texts[i] for i in ticket.rows[row])
            behind = sorted(map(len, endings(ticket.question)))
            length = sum(map(len, prompt_parts(ticket.question, texts)))
            if length + behind[-1] > self.plan.limits.context:
                assert np.isnan(scores).all()
                assert f"is {length + behind[-1]:,} tokens" in self.errors[number, row]
                failed += 1
                continue
            np.testing.assert_allclose(scores, expected_scores(ticket.question, texts), 1e-9, 1e-9)
            if ticket.question.kind is QuestionKind.EACH:
                requested += sum(length + each for each in behind)
            else:
                requested += length + behind[0]
        tree, counters = self.session._tree, self.session.counters
        assert tree.locked == tree.root.length, "something is locked, with nothing left to run"
        assert (counters.prompts, counters.failed) == (len(rows), failed)
        assert counters.requested_tokens == requested
        assert counters.fresh_tokens == len(self.runner.computed)
        assert counters.batches == len(self.runner.batches)

    def check_closed(self) -> None:
        """The accounts are right at the end, and the engine is free, once."""
        check_books(self.session._tree)
        assert self.closed == 1
