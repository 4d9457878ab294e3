"""The 50 queries."""

from __future__ import annotations

from suite.plan import (
    Aggregate,
    InList,
    Plan,
    Scan,
    Score,
    Step,
    Tail,
    Test,
    classified,
    joined,
    judged,
)
from suite.predicates import PREDICATES

_TABLES = {
    "r": "reviews",
    "r1": "reviews",
    "r2": "reviews",
    "a": "aspects",
    "a1": "aspects",
    "a2": "aspects",
    "m": "terms",
    "n": "terms",
    "c": "claims",
    "c1": "claims",
    "c2": "claims",
    "e": "evidence",
    "e1": "evidence",
    "e2": "evidence",
    "d": "citation_contexts",
    "s": "citation_passages",
    "t": "agent_traces",
}


def _plan(name: str, aliases: str, *steps: Step, out: str = "", tail: Tail | None = None) -> Plan:
    """A plan whose output is one id a relation unless `out` says otherwise.

    Args:
        aliases: separated by spaces, with `=table` where it is not the alias's usual one.
    """
    scans = []
    for each in aliases.split():
        alias, _, table = each.partition("=")
        scans.append(Scan(alias, table or _TABLES[alias]))
    outputs = tuple(out.split()) or tuple(scan.alias for scan in scans)
    return Plan(name, tuple(scans), steps, outputs, tail or Tail())


def _in(column: str, *labels: str) -> InList:
    return InList(column, labels)


_SENTIMENT = classified("SENTIMENT", "r", "sentiment")
_BAD = _in("sentiment", "negative", "mixed")
_DISCUSS = joined("DISCUSS", "r", "a")
_IMDB = (
    _plan("IMDB-1", "r", judged("F1", "r")),
    _plan("IMDB-2", "r a", _DISCUSS),
    _plan("IMDB-3", "r a", judged("F1", "r"), _DISCUSS),
    _plan("IMDB-4", "r a", judged("F1", "r"), judged("F4", "r"), _DISCUSS),
    _plan("IMDB-5", "r a", judged("F1", "r"), judged("F4", "r"), judged("F5", "r"), _DISCUSS),
    _plan("IMDB-6", "r", judged("F1", "r"), judged("F4", "r")),
    _plan("IMDB-7", "r", judged("F1", "r"), judged("F4", "r"), judged("F5", "r")),
    _plan("IMDB-8", "r a a2", _DISCUSS, joined("ASPECT_SENT", "r", "a2")),
    _plan(
        "IMDB-9",
        "r1 a1 r2 a2",
        joined("DISCUSS", "r1", "a1"),
        joined("DISCUSS", "r2", "a1"),
        joined("ASPECT_SENT", "r2", "a2"),
    ),
    _plan(
        "IMDB-10",
        "r1 a1 r2 a2",
        judged("F1", "r1"),
        joined("DISCUSS", "r1", "a1"),
        joined("DISCUSS", "r2", "a1"),
        joined("ASPECT_SENT", "r2", "a2"),
    ),
    _plan("IMDB-11", "r", _SENTIMENT, out="r sentiment"),
    _plan("IMDB-12", "r", judged("F1", "r"), classified("GENRE", "r", "genre"), out="r genre"),
    _plan("IMDB-13", "r a", _SENTIMENT, _BAD, _DISCUSS, out="r sentiment a"),
    _plan(
        "IMDB-14",
        "r",
        _SENTIMENT,
        _BAD,
        classified("COMPLAINT", "r", "complaint"),
        out="r sentiment complaint",
    ),
    _plan(
        "IMDB-15",
        "r a",
        _SENTIMENT,
        _BAD,
        _DISCUSS,
        classified("ASPECT_CLASS", "r a", "aspect_sentiment"),
        out="r sentiment a aspect_sentiment",
    ),
)

_BIO = (
    _plan("BIO-1", "r=reports", judged("SERIOUS", "r")),
    _plan("BIO-2", "r=reports m", joined("REACTION", "r", "m")),
    _plan("BIO-3", "r=reports m", judged("SERIOUS", "r"), joined("REACTION", "r", "m")),
    _plan(
        "BIO-4",
        "r=reports n c=terms",
        judged("SERIOUS", "r"),
        judged("NEURO", "n"),
        judged("CARDIO", "c"),
        joined("REACTION", "r", "n"),
        joined("REACTION", "r", "c"),
    ),
    _plan("BIO-5", "m", classified("ORGAN", "m", "organ_class"), out="m organ_class"),
    _plan(
        "BIO-6",
        "r=reports m",
        judged("SERIOUS", "r"),
        classified("ORGAN", "m", "organ_class"),
        _in("organ_class", "cardiac", "vascular"),
        joined("REACTION", "r", "m"),
    ),
)

_SUPPORT = joined("SUPPORT", "c", "e")
_CHAIN = (
    joined("SUPPORT", "c1", "e1"),
    joined("REFUTE", "c2", "e1"),
    joined("SUPPORT", "c2", "e2"),
)
_FEV = (
    _plan("FEV-1", "c", judged("F11", "c")),
    _plan("FEV-2", "c e", _SUPPORT),
    _plan("FEV-3", "c e", judged("F11", "c"), _SUPPORT),
    _plan("FEV-4", "c e", judged("F11", "c"), judged("F12", "c"), _SUPPORT),
    _plan("FEV-5", "c e", judged("F11", "c"), judged("F13", "e"), _SUPPORT),
    _plan("FEV-6", "c e", judged("F11", "c"), judged("F12", "c"), judged("F13", "e"), _SUPPORT),
    _plan("FEV-7", "c e e2", _SUPPORT, joined("REFUTE", "c", "e2")),
    _plan("FEV-8", "c1 e1 c2 e2", *_CHAIN),
    _plan(
        "FEV-9",
        "c1 e1 c2 e2",
        judged("F11", "c1"),
        judged("F11", "c2"),
        judged("F13", "e1"),
        judged("F13", "e2"),
        *_CHAIN,
    ),
    _plan(
        "FEV-10",
        "c e",
        judged("F11", "c"),
        judged("F13", "e"),
        joined("SUPPORT", "c", "e", equal=("c.evidence_wiki_url", "e.id")),
    ),
    _plan(
        "FEV-11",
        "c",
        classified("TOPIC", "c", "topic"),
        _in("topic", "politics", "history"),
        out="c topic",
    ),
)

_CITED = joined("LEPJOIN", "d", "s")
_LEP = (
    _plan("LEP-1", "d", judged("LEP1", "d")),
    _plan("LEP-2", "d s", _CITED),
    _plan("LEP-3", "d s", judged("LEP1", "d"), _CITED),
    _plan("LEP-4", "d s", judged("LEP1", "d"), judged("LEP2", "d"), _CITED),
    _plan("LEP-5", "d s", judged("LEP1", "d"), judged("LEP2", "d"), judged("LEPS1", "s"), _CITED),
    _plan(
        "LEP-6",
        "d s",
        classified("AREA", "d", "area"),
        _in("area", "constitutional", "criminal"),
        _CITED,
        out="d area s",
    ),
)

_RECOVERED, _FIX = judged("RECOVERED", "t"), judged("FIX", "t")
_PROGRESS = classified("PROGRESS", "t", "progress")
_CHANGED = _in("progress", *(label.text for label in PREDICATES["PROGRESS"].labels[2:]))
_TESTS = classified("TESTS", "t", "test_result")
_AGENT = (
    _plan("AGENT-1", "t", _RECOVERED),
    _plan("AGENT-2", "t", _FIX),
    _plan("AGENT-3", "t", _RECOVERED, _PROGRESS, out="t progress"),
    _plan("AGENT-4", "t", _PROGRESS, _CHANGED, _TESTS, out="t progress test_result"),
    _plan(
        "AGENT-5",
        "t",
        _PROGRESS,
        classified("DOMAIN", "t", "domain"),
        classified("DEFECT", "t", "root_cause"),
        out="t progress domain root_cause",
    ),
)

_COUNT = Aggregate("count", None, "n")
_TRAJECTORY = ("t.trajectory_id",)
_REL_AGENT = (
    Plan(
        "REL-AGENT-1",
        (
            Scan(
                "t",
                "agent_traces",
                (Test("turn_index", ">=", 10), Test("token_count", "<=", 6_000)),
            ),
        ),
        (_RECOVERED,),
        ("t",),
    ),
    _plan(
        "REL-AGENT-2",
        "t",
        _RECOVERED,
        out="t t.token_count",
        tail=Tail(order=(("t.token_count", False), ("t", False)), offset=10, limit=10),
    ),
    _plan("REL-AGENT-3", "t", _FIX, out="t.trajectory_id", tail=Tail(group=_TRAJECTORY)),
    _plan(
        "REL-AGENT-4",
        "t",
        Score(PREDICATES["RECOVERED"], "t", "recovered_score"),
        out="t recovered_score",
        tail=Tail(order=(("recovered_score", True), ("t", False)), limit=20),
    ),
    _plan(
        "REL-AGENT-5",
        "t",
        _PROGRESS,
        _CHANGED,
        _TESTS,
        out="test_result n trajectories",
        tail=Tail(
            group=("test_result",),
            aggregates=(_COUNT, Aggregate("count", "t.trajectory_id", "trajectories", True)),
            having=("n", ">=", 50),
            order=(("n", True), ("test_result", False)),
        ),
    ),
    _plan(
        "REL-AGENT-6",
        "t",
        _FIX,
        out="t.trajectory_id fixes first_fix longest",
        tail=Tail(
            group=_TRAJECTORY,
            aggregates=(
                Aggregate("count", None, "fixes"),
                Aggregate("min", "t.turn_index", "first_fix"),
                Aggregate("max", "t.token_count", "longest"),
            ),
            having=("fixes", ">=", 2),
            order=(("first_fix", False), ("t.trajectory_id", False)),
            limit=50,
        ),
    ),
    _plan(
        "REL-AGENT-7",
        "t",
        Score(PREDICATES["FIX"], "t", "score"),
        out="t.trajectory_id mean_fix_score n",
        tail=Tail(
            group=_TRAJECTORY,
            aggregates=(Aggregate("avg", "score", "mean_fix_score"), _COUNT),
            having=("n", ">=", 5),
            order=(("mean_fix_score", True), ("t.trajectory_id", False)),
            limit=10,
        ),
    ),
)

QUERIES = {q.id: q for q in (*_IMDB, *_BIO, *_FEV, *_LEP, *_AGENT, *_REL_AGENT)}
