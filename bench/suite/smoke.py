"""A few short rows of every table: all 50 queries on a laptop, in CI, in a minute."""

from __future__ import annotations

import pyarrow as pa

from suite.predicates import PREDICATES
from suite.shapes import Int64
from suite.tables import DEFAULT_SEED, Corpus, make_corpus
from suite.tokens import suite_encoder

SCALE = 0.0  # what result files call it
ROWS = {
    "reviews": 8,
    "aspects": 4,
    "reports": 3,
    "terms": 10,
    "claims": 8,
    "evidence": 6,
    "citation_contexts": 6,
    "citation_passages": 5,
    "agent_traces": 6,
}
_CHARACTERS = 400  # of a text; what is behind is cut off
_TRACE_CHARACTERS = 240  # of a trace, times its turn, so that snapshots still nest


def smoke_corpus(seed: int = DEFAULT_SEED) -> Corpus:
    """The smallest scale factor, cut down; keys point into the rows that are left."""
    whole = make_corpus(0.01, seed)
    texts = {table: column for p in PREDICATES.values() for table, column in p.documents}
    encoder = suite_encoder()
    tables: dict[str, pa.Table] = {}
    lengths: dict[str, Int64] = {}
    for name, rows in ROWS.items():
        table = whole.tables[name].slice(0, rows)
        place = table.column_names.index(texts[name])
        cut = _cut(name, table, texts[name])
        table = table.set_column(place, texts[name], pa.array(cut, pa.large_string()))
        tables[name] = table
        offsets = encoder.encode(cut)[1]
        lengths[name] = offsets[1:] - offsets[:-1]
    page = whole.page[: ROWS["claims"]] % ROWS["evidence"]
    names = tables["evidence"]["id"].to_pylist()
    column = pa.array([names[i] for i in page.tolist()])
    claims = tables["claims"]
    tables["claims"] = claims.set_column(
        claims.column_names.index("evidence_wiki_url"), "evidence_wiki_url", column
    )
    counts = pa.array(lengths["agent_traces"])
    traces = tables["agent_traces"]
    tables["agent_traces"] = traces.set_column(
        traces.column_names.index("token_count"), "token_count", counts
    )
    return Corpus(
        SCALE,
        seed,
        tables,
        lengths,
        whole.with_year[: ROWS["claims"]],
        page,
        whole.cites[: ROWS["citation_contexts"]] % ROWS["citation_passages"],
        tuple(each[each < ROWS["terms"]] for each in whole.reactions[: ROWS["reports"]]),
    )


def _cut(name: str, table: pa.Table, column: str) -> list[str]:
    texts = table[column].to_pylist()
    if name != "agent_traces":
        return [text[:_CHARACTERS] for text in texts]
    turns = table["turn_index"].to_pylist()
    return [text[: _TRACE_CHARACTERS * turn] for text, turn in zip(texts, turns, strict=True)]
