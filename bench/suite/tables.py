"""The tables, made from a seed. A smaller scale factor's rows are a larger one's first rows.

    corpus = make_corpus(0.1)
    corpus.tables["reviews"]          id, body

Each table's first column is its id. Row counts, lengths and keys are those of `shapes`; what
matters beyond them: traces are nested snapshots, claims name pages and contexts cite
passages with the benchmark's density, terms share their first words, and claims that contain
a year are longer than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from suite import shapes
from suite.shapes import ROWS, TERM_TOKENS, Int64, draw_lengths, rows
from suite.traces import plan_traces, write_traces
from suite.words import Writer, generator, vocabulary

DEFAULT_SEED = 20260818
SUBJECTS = {
    "reviews": "film",
    "reports": "clinic",
    "evidence": "world",
    "citation_contexts": "law",
    "citation_passages": "law",
}
_CLAIMS, _TERMS, _PAGES, _CITES, _REACTIONS = 80, 81, 82, 83, 84  # paths of random numbers
# 69 of the first 500, the share of claims that contain a date or a year.
_YEAR_SHARE = 0.138
_PREFIX = {
    "reviews": "rv",
    "aspects": "as",
    "reports": "rp",
    "terms": "tm",
    "claims": "cl",
    "citation_contexts": "lc",
    "citation_passages": "lp",
}
ASPECTS = tuple(
    f"the {word}"
    for word in (
        "story",
        "music",
        "ending",
        "sound",
        "script",
        "camera",
        "cast",
        "humor",
        "pace",
        "dialogue",
        "costume",
        "opening",
    )
)


@dataclass(frozen=True)
class Corpus:
    """All tables of one scale factor, and what the planted truth needs to know of them.

    Attributes:
        scale, seed: what it was made from.
        tables: by name, the id first.
        lengths: tokens of each row's text by construction, in the suite's tokenizer.
        with_year: (claims,) bool, whether the claim contains a year.
        page: (claims,) int64, the evidence row that the claim names.
        cites: (contexts,) int64, the passage row that the context cites.
        reactions: term rows that each report names.
    """

    scale: float
    seed: int
    tables: dict[str, pa.Table]
    lengths: dict[str, Int64]
    with_year: np.ndarray
    page: Int64
    cites: Int64
    reactions: tuple[Int64, ...]


def make_corpus(scale: float, seed: int = DEFAULT_SEED) -> Corpus:
    """All tables of a scale factor.

    Raises:
        InputError: there is no such scale factor.
    """
    lengths = {name: _lengths(name, number, seed) for number, name in enumerate(shapes.LENGTHS)}
    tables: dict[str, pa.Table] = {}
    for number, (name, subject) in enumerate(SUBJECTS.items()):
        lengths[name] = lengths[name][: rows(name, scale)]
        tables[name] = _prose(Writer(subject), seed, number, lengths[name])
    lengths["aspects"] = np.full(len(ASPECTS), 2, dtype=np.int64)
    terms, lengths["terms"] = _terms(seed, rows("terms", scale))
    claims, lengths["claims"], with_year = _claims(seed, rows("claims", scale))
    page = _named(generator(seed, _PAGES), "claims", "evidence")[: len(claims)]
    cites = _named(generator(seed, _CITES), "citation_contexts", "citation_passages")
    cites = cites[: rows("citation_contexts", scale)]
    reactions = tuple(_reactions(seed, rows("reports", scale)))
    traces, lengths["agent_traces"] = _agent_traces(seed, rows("agent_traces", scale))
    columns = _columns(tables, terms, claims, page, cites, reactions)
    return Corpus(
        scale,
        seed,
        {**columns, "agent_traces": traces},
        lengths,
        with_year,
        page,
        cites,
        reactions,
    )


def _columns(
    texts: dict[str, pa.Array],
    terms: list[str],
    claims: list[str],
    page: Int64,
    cites: Int64,
    reactions: tuple[Int64, ...],
) -> dict[str, pa.Table]:
    pages = np.array(_page_names(len(texts["evidence"])), dtype=object)
    verdicts = ["SUPPORTS" if i % 13 < 8 else "REFUTES" for i in range(len(claims))]
    named = [[terms[t] for t in row.tolist()] for row in reactions]
    passage_ids = np.array(_ids("citation_passages", len(texts["citation_passages"])), object)
    found = {
        "reviews": {"body": texts["reviews"]},
        "aspects": {"aspect": list(ASPECTS)},
        "reports": {"report": texts["reports"], "reactions": named},
        "terms": {"term": terms},
        "claims": {"claim": claims, "label": verdicts, "evidence_wiki_url": pages[page].tolist()},
        "evidence": {"text": texts["evidence"]},
        "citation_contexts": {
            "destination_context": texts["citation_contexts"],
            "cited_passage_ids": [[each] for each in passage_ids[cites].tolist()],
        },
        "citation_passages": {
            "passage_text": texts["citation_passages"],
            "passage_ids": [[each] for each in passage_ids.tolist()],
        },
    }
    return {
        name: pa.table(
            {
                "id": pages.tolist() if name == "evidence" else _ids(name, _size(columns)),
                **columns,
            }
        )
        for name, columns in found.items()
    }


def _size(columns: dict[str, list[object]]) -> int:
    return len(next(iter(columns.values())))


def _ids(table: str, count: int) -> list[str]:
    return [f"{_PREFIX[table]}{i}" for i in range(count)]


def _page_names(count: int) -> list[str]:
    words = vocabulary()["world"]
    size = len(words)
    return [f"{words[i % size]}_{words[(7 * i + 3) % size]}_{i}".title() for i in range(count)]


def _lengths(name: str, number: int, seed: int) -> Int64:
    rng = generator(seed, 70, number)
    return draw_lengths(rng, shapes.LENGTHS[name], ROWS[name][-1], ROWS[name][1])


def _prose(writer: Writer, seed: int, number: int, lengths: Int64) -> list[str]:
    return [
        writer.text(generator(seed, number, row), count)
        for row, count in enumerate(lengths.tolist())
    ]


def _terms(seed: int, count: int) -> tuple[list[str], Int64]:
    """Distinct reactions in the manner of a medical word list, most frequent first."""
    words = vocabulary()
    organs, findings = words["organs"], words["findings"]
    rng = generator(seed, _TERMS)
    seen: dict[str, int] = {}
    total = 0
    while len(seen) < ROWS["terms"][-1]:
        # Frequent organs and findings come first in their lists: leading words are shared.
        one = organs[int(len(organs) * rng.random() ** 1.7)]
        two = findings[int(len(findings) * rng.random() ** 1.5)]
        wanted = TERM_TOKENS * (len(seen) + 1) - total  # keeps the running mean
        more = max(0, round(wanted + rng.normal(0.0, 1.3)) - 2)
        rest = rng.choice(words["qualifiers"], size=min(more, 7), replace=False).tolist()
        term = " ".join([one, two, *rest])
        if term not in seen:
            seen[term] = 2 + len(rest)
            total += 2 + len(rest)
    terms = list(seen)[:count]
    return terms, np.array([seen[term] for term in terms], dtype=np.int64)


def _claims(seed: int, count: int) -> tuple[list[str], Int64, np.ndarray]:
    """Claims, their lengths, and which contain a year."""
    whole, exact = ROWS["claims"][-1], ROWS["claims"][1]
    rng = generator(seed, _CLAIMS, 0)
    with_year = np.zeros(whole, dtype=bool)
    for start, stop in ((0, exact), (exact, whole)):
        chosen = rng.choice(stop - start, size=round(_YEAR_SHARE * (stop - start)), replace=False)
        with_year[start + chosen] = True
    lengths = draw_lengths(rng, shapes.CLAIM_TOKENS, whole, exact)
    longer = shapes.CLAIM_WITH_YEAR_TOKENS
    lengths[with_year] = draw_lengths(
        rng, longer, int(with_year.sum()), int(with_year[:exact].sum())
    )
    writer = Writer("world")
    texts = []
    for row in range(count):
        own = generator(seed, _CLAIMS, 1, row)
        if with_year[row]:
            year = f" in {own.integers(1700, 2026)}."  # 7 tokens: in, a space, four digits, stop
            tokens = writer.tokens(own, int(lengths[row]) - 7, stop=False)
            texts.append("".join(tokens) + year)
        else:
            texts.append(writer.text(own, int(lengths[row])))
    return texts, lengths[:count], with_year[:count]


def _named(rng: np.random.Generator, table: str, other: str) -> Int64:
    """Which row of `other` each row of `table` names; every row of `other` is named.

    New rows are named at the pace at which the number of rows grows from one scale factor
    to the next, all others are repeats.
    """
    steps = np.interp(np.arange(ROWS[table][-1] + 1), (0, *ROWS[table]), (0, *ROWS[other])).astype(
        np.int64
    )
    new = np.diff(steps) > 0
    repeats = (rng.random(len(new)) * np.maximum(steps[1:], 1)).astype(np.int64)
    return np.where(new, steps[:-1], repeats)


def _reactions(seed: int, count: int) -> Iterator[Int64]:
    """Term rows of each report: a few, the frequent ones more often."""
    few = ROWS["terms"][0]
    for row in range(count):
        rng = generator(seed, _REACTIONS, row)
        drawn = (few * rng.random(int(rng.integers(2, 7))) ** 2).astype(np.int64)
        yield np.unique(drawn)


def _agent_traces(seed: int, count: int) -> tuple[pa.Table, Int64]:
    plan = plan_traces(seed)
    trajectory, turn = plan.trajectory[:count].tolist(), plan.turn[:count].tolist()
    lengths = plan.tokens[:count]
    table = pa.table(
        {
            "id": [f"at{t:04d}-t{n:03d}" for t, n in zip(trajectory, turn, strict=True)],
            "trace": pa.array(write_traces(seed, plan, count), pa.large_string()),
            "trajectory_id": [f"at{t:04d}" for t in trajectory],
            "turn_index": turn,
            "token_count": lengths,
        }
    )
    return table, lengths
