"""Planted queries for `bench/decisions.py`: the shapes of QUAIL-B, scaled down, and others."""

from __future__ import annotations

from dataclasses import dataclass, field

_QUESTION = 50


@dataclass(frozen=True)
class Table:
    """Texts of about so many tokens; `spread` is the sigma of their logarithm."""

    rows: int
    tokens: int
    spread: float = 0.5


@dataclass(frozen=True)
class Asked:
    """A condition over one alias or two.

    Attributes:
        name: of the question; equal names are one question.
        aliases: whose texts it is about, the anchor first.
        rate: share of documents or pairs that pass.
        tokens: length of the question.
        of: another question whose chance this one uses, so that the two go together; with
            a rate below 0 the rows pass that the other one likes least.
    """

    name: str
    aliases: tuple[str, ...]
    rate: float
    tokens: int = _QUESTION
    of: str | None = None


@dataclass(frozen=True)
class Shape:
    """A query: aliases with their tables, conditions as written, an equality perhaps."""

    name: str
    sources: dict[str, str]
    asked: tuple[Asked, ...]
    equal: tuple[str, str] | None = None
    tables: dict[str, Table] = field(default_factory=dict)


TABLES = {
    "reviews": Table(400, 300),
    "aspects": Table(12, 3, 0.1),
    "reports": Table(100, 1500),
    "terms": Table(110, 5, 0.2),
    "claims": Table(300, 11, 0.2),
    "evidence": Table(100, 430),
    "contexts": Table(200, 212),
    "passages": Table(90, 59),
    "traces": Table(300, 2000, 0.8),
}


def f(name: str, alias: str, rate: float, tokens: int = _QUESTION, of: str | None = None) -> Asked:
    return Asked(name, (alias,), rate, tokens, of)


def j(name: str, anchor: str, partner: str, rate: float, tokens: int = _QUESTION) -> Asked:
    return Asked(name, (anchor, partner), rate, tokens)


_R, _RA = {"r": "reviews"}, {"r": "reviews", "a": "aspects"}
_RM = {"r": "reports", "m": "terms"}
_CE, _DS, _T = {"c": "claims", "e": "evidence"}, {"d": "contexts", "s": "passages"}, {"t": "traces"}
_F1, _F4, _F5 = f("f1", "r", 0.801), f("f4", "r", 0.244), f("f5", "r", 0.571)
_J1 = j("discuss", "r", "a", 0.295)
_SERIOUS, _REACTION = f("serious", "r", 0.638), j("reaction", "r", "m", 0.034)
_F11, _F12, _F13 = f("f11", "c", 0.592), f("f12", "c", 0.138), f("f13", "e", 0.554)
_SUPPORT = j("support", "e", "c", 0.0022)
_LEP1, _LEP2, _LEPS = f("lep1", "d", 0.028), f("lep2", "d", 0.458), f("leps", "s", 0.811)
_CITES = j("cites", "d", "s", 0.0023)

QUERIES = (
    Shape("imdb-3", _RA, (_J1, _F1)),
    Shape("imdb-4", _RA, (_J1, _F1, _F4)),
    Shape("imdb-5", _RA, (_J1, _F1, _F5, _F4)),
    Shape("imdb-6", _R, (_F1, _F4)),
    Shape("imdb-7", _R, (_F1, _F5, _F4)),
    Shape("imdb-7 survivors", _R, (f("f1", "r", 0.876), f("f5", "r", 0.578), f("f4", "r", 0.287))),
    Shape("imdb-8", _RA | {"b": "aspects"}, (_J1, j("praise", "r", "b", 0.161))),
    Shape(
        "imdb-9",
        {"r": "reviews", "a": "aspects", "q": "reviews", "b": "aspects"},
        (_J1, j("discuss", "q", "a", 0.295), j("praise", "q", "b", 0.161)),
    ),
    Shape(
        "imdb-10",
        {"r": "reviews", "a": "aspects", "q": "reviews", "b": "aspects"},
        (_J1, j("discuss", "q", "a", 0.295), j("praise", "q", "b", 0.161), _F1),
    ),
    Shape("imdb-13", _RA, (_J1, f("sentiment", "r", 0.585))),
    Shape("imdb-15", _RA, (f("sentiment", "r", 0.585, 80), _J1, j("pair", "r", "a", 0.25, 60))),
    Shape("bio-3", _RM, (_REACTION, _SERIOUS)),
    Shape("bio-3 survivors", _RM, (_REACTION, f("serious", "r", 0.548))),
    Shape(
        "bio-4",
        {"r": "reports", "n": "terms", "c": "terms"},
        (
            j("reaction", "r", "n", 0.034), j("reaction", "r", "c", 0.034), _SERIOUS,
            f("neuro", "n", 0.448), f("cardio", "c", 0.35),
        ),
    ),
    Shape("bio-6", _RM, (_REACTION, _SERIOUS, f("organ", "m", 0.097, 120))),
    Shape("fev-3", _CE, (_SUPPORT, _F11)),
    Shape("fev-4", _CE, (_SUPPORT, _F11, _F12)),
    Shape("fev-5", _CE, (_SUPPORT, _F11, _F13)),
    Shape("fev-6", _CE, (_SUPPORT, _F11, _F12, _F13)),
    Shape("fev-6 survivors", _CE, (
        j("support", "e", "c", 0.05), f("f11", "c", 0.722), f("f12", "c", 0.13),
        f("f13", "e", 0.596),
    )),
    Shape("fev-7", _CE | {"g": "evidence"}, (_SUPPORT, j("refute", "g", "c", 0.0033))),
    Shape("fev-7 survivors", _CE | {"g": "evidence"}, (
        j("support", "e", "c", 0.053), j("refute", "g", "c", 0.172),
    )),
    Shape("fev-8", {"c": "claims", "e": "evidence", "k": "claims", "g": "evidence"}, (
        _SUPPORT, j("refute", "e", "k", 0.0033), j("support", "g", "k", 0.0022),
    )),
    Shape("fev-9", {"c": "claims", "e": "evidence", "k": "claims", "g": "evidence"}, (
        j("refute", "e", "k", 0.0033), _SUPPORT, j("support", "g", "k", 0.0022), _F11, _F13,
    )),
    Shape("fev-10", _CE, (_SUPPORT, _F11, _F13), equal=("c", "e")),
    Shape("fev anchored at claims", _CE, (j("support", "c", "e", 0.003), _F11, _F13)),
    Shape("lep-3", _DS, (_CITES, _LEP1)),
    Shape("lep-3 survivors", _DS, (_CITES, f("lep1", "d", 0.712))),
    Shape("lep-4", _DS, (_CITES, _LEP2, _LEP1)),
    Shape("lep-5", _DS, (_CITES, _LEPS, _LEP2, _LEP1)),
    Shape("lep-5 survivors", _DS, (
        _CITES, f("leps", "s", 0.97), f("lep1", "d", 0.712), f("lep2", "d", 0.421, of="lep1"),
    )),
    Shape("agent both", _T, (f("recovered", "t", 0.322, 77), f("fix", "t", 0.303, 101))),
    Shape("agent four", _T, (
        f("progress", "t", 0.36, 300), f("recovered", "t", 0.322, 77), f("fix", "t", 0.303, 101),
        f("rare", "t", 0.02, 60),
    )),
    Shape("short texts", {"c": "claims"}, (
        f("often", "c", 0.9), f("half", "c", 0.5), f("seldom", "c", 0.1), f("long", "c", 0.05, 400),
    )),
    Shape("five filters", {"c": "claims"}, (
        f("a", "c", 0.95, 40), f("b", "c", 0.7, 120), f("d", "c", 0.6, 30), f("e", "c", 0.3, 90),
        f("g", "c", 0.15, 200),
    )),
    Shape("long question first", {"c": "claims"}, (f("long", "c", 0.4, 500), f("x", "c", 0.5, 30))),
    Shape("go together", {"c": "claims"}, (
        f("a", "c", 0.5), f("b", "c", 0.45, of="a"), f("d", "c", 0.55),
    )),
    Shape("exclude each other", {"c": "claims"}, (
        f("a", "c", 0.5), f("d", "c", 0.3), f("b", "c", -0.45, of="a"),
    )),
    Shape("together below a join", _CE, (
        j("support", "e", "c", 0.05), f("a", "c", 0.4), f("b", "c", 0.35, of="a"), _F13,
    )),
    Shape("filter of the partner", _RM, (_REACTION, f("never", "m", 0.02, 60))),
    Shape("filter above the join", _RA, (
        f("costly", "r", 0.95, 700), j("rare", "r", "a", 0.01))),
    Shape("costly filter of pages", _CE, (
        f("costly", "e", 0.9, 600), j("support", "c", "e", 0.01), f("seldom", "c", 0.05),
    )),
    Shape("skewed lengths", _T, (
        f("a", "t", 0.8, 400), f("b", "t", 0.5, 60), f("d", "t", 0.1, 900),
    ), tables={"traces": Table(400, 150, 1.5)}),
    Shape("star of three", {"r": "reviews", "a": "aspects", "b": "aspects", "g": "aspects"}, (
        j("x", "r", "a", 0.6), j("y", "r", "b", 0.2), j("z", "r", "g", 0.02), f("f4", "r", 0.244),
    )),
    Shape("nothing passes", _CE, (_SUPPORT, f("often", "e", 0.9), f("none", "c", 0.0))),
)  # fmt: skip
