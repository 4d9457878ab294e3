"""Refuse the statements that reach past what a connection may; see `covey.api.capabilities`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
from sqlglot import TokenType

from covey.api.access import Access
from covey.api.capabilities import FUNCTIONS, SETTINGS, STATEMENTS, Capability
from covey.errors import QueryError
from covey.sql.bind import Binder, statement_kinds
from covey.sql.edited_text import EditedText
from covey.sql.statements import is_query, only_reads
from covey.sql.text import Token, TokenList, read_tokens

# Name and text of what a database brings along when it is opened or attached; later ones are
# judged when they are made. Temporary views are data that the user has registered.
_DEFINED = """
    SELECT system.main.lower(view_name), sql FROM system.main.duckdb_views() WHERE NOT internal
        AND NOT temporary
    UNION ALL SELECT system.main.lower(function_name), macro_definition
        FROM system.main.duckdb_functions()
        WHERE macro_definition IS NOT NULL AND NOT internal AND database_name <> 'temp'
    UNION ALL SELECT system.main.lower(table_name), sql FROM system.main.duckdb_triggers()"""
_KNOWN = """
    SELECT DISTINCT system.main.lower(function_name) FROM system.main.duckdb_functions()
    WHERE internal AND (extension_name IS NOT NULL OR NOT $extensions)"""
# A name in front of a bracket is no function behind these.
_NAMES_A_TABLE = ("INTO", "TABLE", "AS", "WITH", "RECURSIVE")
# Statements that DuckDB carries out as functions, by their first word.
_AS_FUNCTIONS = {
    "CHECKPOINT": "checkpoint",
    "FORCE": "force_checkpoint",
    "IMPORT": "import_database",
    "COPY": "copy_database",
}
# What a name or a list of names consists of.
_PLAIN = (TokenType.STRING, TokenType.COMMA, TokenType.L_BRACKET, TokenType.R_BRACKET)
_NEW = "is not known to Covey, which cannot say what it reaches"


class AccessCheck:
    """Judges the statements of one connection.

    Args:
        connection: where they run.
        access: what they may reach.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, access: Access) -> None:
        self.connection = connection
        self.access = access
        self._limited = access.read_only or access.allow is not None
        self._brought: dict[str, list[str]] | None = None
        # Functions of Python's, which are the user's word, come later.
        self._unknown = self._unlisted() if self._limited else frozenset[str]()

    def check(self, tokens: TokenList) -> None:
        """Refuse one statement that reaches too far.

        Raises:
            QueryError: at the place that does.
        """
        first = tokens[0].word
        if first in ("SET", "RESET", "PRAGMA", "USE"):
            self._check_setting(tokens)
        if not self._limited:
            return
        kinds = statement_kinds(self.connection, tokens.text)
        if not kinds:
            Binder(self.connection, EditedText(tokens.text)).parse()
        kind = kinds[0].name if len(kinds) == 1 and kinds[0] is not None else "of a new kind"
        self._check_kind(kind, tokens)
        if kind in ("PRAGMA", "CALL") and first != "CALL":
            called = _AS_FUNCTIONS.get(first) or tokens[1].text.lower()
            self._check_function(called, tokens, 0)
        self.check_names(tokens)
        if kind == "ATTACH":
            self._brought = None

    def check_names(self, tokens: TokenList) -> None:
        """Refuse a statement that calls, or reads, what reaches too far.

        Raises:
            QueryError: at the place that does.
        """
        if not self._limited:
            return
        if self._brought is None:
            self._brought = self._definitions()
        for place, called, inside in _with_definitions(tokens, self._brought):
            for i in _calls(called):
                self._check_function(called[i].text.lower(), tokens, i if inside is None else place)
            self._check_patterns(called, tokens, None if inside is None else place)

    def _check_kind(self, kind: str, tokens: TokenList) -> None:
        reach = STATEMENTS.get(kind, Capability.REACHES)
        if self.access.read_only:
            shown = only_reads(tokens) if kind == "EXPLAIN" else kind != "MULTI" or is_query(tokens)
            if reach is not Capability.HARMLESS or not shown:
                raise _read_only(tokens)
        if reach is Capability.REACHES or _names_secret(tokens):
            raise _too_far("This statement", tokens, 0)

    def _check_setting(self, tokens: TokenList) -> None:
        place = _setting(tokens)
        if place is None:
            return
        name = tokens[place].text.lower()
        if tokens[0].word == "PRAGMA" and name not in SETTINGS:
            return
        reach = SETTINGS.get(name)
        if reach is Capability.RELIED:
            raise tokens.error(
                f"The setting {name} is Covey's own: it {reach.value}",
                tokens.span(place, place + 1),
                "Make data of Python's known with con.register('name', data).",
            )
        if self.access.allow is not None and reach is not Capability.HARMLESS:
            raise _too_far(f"The setting {name}", tokens, place)

    def _check_function(self, name: str, tokens: TokenList, place: int) -> None:
        reach = FUNCTIONS.get(name)
        if reach is None:
            unknown = self._unlisted() if self.access.extensions else self._unknown
            if name in unknown:
                raise _refused(f"The function {name} {_NEW}", tokens, place)
        elif reach is Capability.WRITES and self.access.read_only:
            raise _read_only(tokens, place)
        elif reach is Capability.REACHES:
            raise _too_far(name, tokens, place)

    def _check_patterns(self, called: TokenList, tokens: TokenList, place: int | None) -> None:
        """Refuse a pattern that would list a folder which a link leads out to."""
        if self.access.allow is None:
            return
        texts = {
            i: token.text
            for i, token in enumerate(called)
            if token.kind in (TokenType.STRING, TokenType.IDENTIFIER)
            and any(mark in token.text for mark in "*?[")
        }
        computed = [i for i in _calls(called) if _reads_computed(called, i)]
        if not texts and not computed:
            return
        for link in _links_out(self.access.allow):
            met = [i for i, text in texts.items() if _passes_through(text, link)]
            if met or computed:
                at = (met or computed)[0] if place is None else place
                reason = f"A pattern could list what lies behind the link {link}, which leads out"
                raise _refused(reason, tokens, at)

    def _unlisted(self) -> frozenset[str]:
        """Functions of DuckDB's that are in no list."""
        found = self.connection.execute(_KNOWN, {"extensions": self.access.extensions}).fetchall()
        return frozenset(name for (name,) in found) - FUNCTIONS.keys()

    def _definitions(self) -> dict[str, list[str]]:
        defined: dict[str, list[str]] = {}
        for name, text in self.connection.execute(_DEFINED).fetchall():
            defined.setdefault(name, []).append(text)
        return defined


def _with_definitions(
    tokens: TokenList, defined: dict[str, list[str]]
) -> Iterator[tuple[int, TokenList, str | None]]:
    """A statement, and the views and macros that it names, through others too.

    Yields:
        where the statement names it, its text, and its name; of the statement itself no name.
    """
    yield 0, tokens, None
    seen: set[str] = set()
    open_ones = [(i, token.text.lower()) for i, token in enumerate(tokens)]
    while open_ones:
        place, name = open_ones.pop()
        if name in seen or name not in defined:
            continue
        seen.add(name)
        for text in defined[name]:
            inner = read_tokens(text)
            yield place, inner, name
            open_ones += [(place, token.text.lower()) for token in inner]


def _calls(tokens: TokenList) -> Iterator[int]:
    """Where names stand in front of a bracket, as those of functions do."""
    for i in range(len(tokens) - 1):
        called = _is_name(tokens[i]) and tokens[i + 1].kind is TokenType.L_PAREN
        if called and not (i and tokens[i - 1].word in _NAMES_A_TABLE):
            yield i


def _is_name(token: Token) -> bool:
    return token.kind is TokenType.IDENTIFIER or bool(token.word)


def _reads_computed(tokens: TokenList, call: int) -> bool:
    """Whether a call reads files whose names the text does not show."""
    if FUNCTIONS.get(tokens[call].text.lower()) is not Capability.READS:
        return False
    first, last = tokens.split(call + 2, tokens.partner[call + 1], TokenType.COMMA)[0]
    return any(token.kind not in _PLAIN for token in tokens[first:last])


def _setting(tokens: TokenList) -> int | None:
    """Where a SET, RESET, PRAGMA or USE names its setting; None for a variable or the schema."""
    i = 1
    if i < len(tokens) and tokens[i].word in ("SESSION", "GLOBAL", "LOCAL"):
        i += 1
    if i >= len(tokens) or tokens[0].word == "USE" or tokens[i].word in ("VARIABLE", "TIME"):
        return None
    return i


def _names_secret(tokens: TokenList) -> bool:
    """Whether the statement creates or drops a secret."""
    if tokens[0].word not in ("CREATE", "DROP", "ALTER"):
        return False
    words = [token.word for token in tokens[1:6]]
    around = ("OR", "REPLACE", "PERSISTENT", "TEMPORARY", "TEMP", "LOCAL")
    return next((word for word in words if word not in around), "") == "SECRET"


def _refused(reason: str, tokens: TokenList, place: int) -> QueryError:
    return tokens.error(
        reason,
        tokens.span(place, place + 1),
        "Connect without allow=[…] and read_only=True for what is trusted with all of it.",
    )


def _too_far(what: str, tokens: TokenList, place: int) -> QueryError:
    return _refused(f"{what} {Capability.REACHES.value}", tokens, place)


def _read_only(tokens: TokenList, place: int = 0) -> QueryError:
    return tokens.error(
        "This connection is read-only",
        tokens.span(place, place + 1),
        "Connect without read_only=True to change anything.",
    )


def _links_out(allowed: Sequence[Path]) -> Iterator[Path]:
    """The links inside allowed folders to folders outside of them.

    DuckDB opens no file behind one, but a pattern with a wildcard for the link itself lists the
    names there.
    """
    real = [path.resolve() for path in allowed]
    open_ones = [path for path in allowed if path.is_dir()]
    while open_ones:
        try:
            entries = list(os.scandir(open_ones.pop()))
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if not entry.is_symlink():
                if entry.is_dir():
                    open_ones.append(path)
            elif path.is_dir():
                target = path.resolve()
                if not any(target.is_relative_to(inside) for inside in real):
                    yield path


def _passes_through(pattern: str, link: Path) -> bool:
    """Whether a pattern lists what lies behind a link."""
    # The folder may be named through another link.
    wanted = Path(os.path.normpath(Path.cwd() / pattern)).parts
    return any(
        _matches_start(wanted, path.parts) for path in (link, link.parent.resolve() / link.name)
    )


def _matches_start(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether the first parts of a pattern match a path, and some are left."""
    # Which part of the pattern may come next.
    states = {0}
    for number, name in enumerate(path):
        after = set[int]()
        for state in states:
            at = state
            while at < len(pattern) and pattern[at] == "**":
                if number < len(path) - 1:  # It goes through no link itself.
                    after.add(at)
                at += 1
            if at < len(pattern) and fnmatchcase(name.lower(), pattern[at].lower()):
                after.add(at + 1)
        states = after
    return any(state < len(pattern) for state in states)
