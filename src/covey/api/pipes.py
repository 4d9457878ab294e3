"""Sources that can be read once: pipes, sockets and terminals, copied before they are planned.

A query is planned, sampled and run, and each of these reads its sources. A pipe gives its rows
to the first.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import weakref
from pathlib import Path
from typing import BinaryIO

from sqlglot import TokenType

from covey.api.access import Access
from covey.errors import InputError
from covey.hardware.paths import descriptor
from covey.logical.text_span import TextSpan
from covey.sql.file_names import FileName, file_names
from covey.sql.rewritten import Fragment, RewrittenSql
from covey.sql.text import quote_text, read_tokens

_FORMS = (".csv", ".tsv", ".txt", ".parquet", ".json", ".jsonl", ".ndjson")
_PACKED = (".gz", ".zst")


class Pipes:
    """Copies what can be read once, once.

    Whoever holds the connection's lock owns it.

    Args:
        folder: for the copies; it goes with the connection.
        access: what SQL may reach.
    """

    def __init__(self, folder: Path, access: Access) -> None:
        self._folder = folder
        self._access = access
        self._numbers = itertools.count()
        # Of a pipe that is open already there is no other content to come.
        self._open: dict[tuple[int, int], Path] = {}

    def copy(self, path: str) -> Path | None:
        """A file with the content of a pipe, which this reads to its end; None of other files.

        Raises:
            InputError: it gives nothing, or cannot be read or copied.
        """
        key = pipe(path)
        if key is None:
            return None
        number = descriptor(path)
        if self._access.allow is not None:
            raise InputError(
                f"{path} is a pipe, which a connection with allow cannot read: copy it to a file "
                "that allow names."
            )
        if number is not None and key in self._open:
            return self._open[key]
        target = self._folder / f"pipe{next(self._numbers)}" / Path(path).name
        try:
            target.parent.mkdir()
            with _opened(path, number) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        if not target.stat().st_size:
            raise InputError(f"{path} gives nothing: it is empty, or was read before.")
        if number is not None:
            self._open[key] = target
        return target

    def registered(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """The file to register in the place of another: a copy, where that is a pipe.

        Raises:
            InputError: as `copy`, or its name does not say its form.
        """
        text = os.fsdecode(path)
        if pipe(text) is not None and not _form(text):
            raise InputError(
                f"The name of {text} does not say its form. Register what reads it: "
                f"con.sql(\"FROM read_csv('{text}')\").arrow()."
            )
        return self.copy(text) or path


class Copies:
    """The pipes of one query, each read once however often it is named.

    Copies of pipes with a name go with it.
    """

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._named: dict[str, Path] = {}

    def read(self, rewritten: RewrittenSql) -> RewrittenSql:
        """The same statement over copies of the pipes that it names.

        Raises:
            QueryError: one cannot be read, or the statement would keep its name.
        """
        edits: list[tuple[TextSpan, list[Fragment]]] = []
        tokens = read_tokens(rewritten.text)
        keeps = {token.word for token in tokens[:5]} & {"VIEW", "MACRO", "FUNCTION"}
        for name in file_names(tokens):
            span = name.token.span
            try:
                copied = self._copied(name)
                if copied is not None and keeps and tokens[0].word == "CREATE":
                    raise InputError(
                        f"{name.token.text} can be read once, and what keeps its name would read "
                        "it again. Create a table of it."
                    )
            except InputError as error:
                raise rewritten.locate(tokens.error(str(error), span)) from None
            if copied is not None:
                edits.append((span, [Fragment(quote_text(str(copied)))]))
        return rewritten.edited(edits) if edits else rewritten

    def _copied(self, name: FileName) -> Path | None:
        path = name.token.text
        if path in self._named:
            return self._named[path]
        if name.alone and not _form(path):
            if name.token.kind is TokenType.STRING and pipe(path) is not None:
                raise InputError(
                    f"The name of {path} does not say its form: write read_csv('{path}'), "
                    "read_json or read_parquet"
                )
            return None
        copied = self._pipes.copy(path)
        if copied is not None:
            self._named[path] = copied
            if descriptor(path) is None:
                weakref.finalize(self, shutil.rmtree, copied.parent, ignore_errors=True)
        return copied


def pipe(path: str) -> tuple[int, int] | None:
    """Which pipe, socket or terminal a path leads to; None where it can be read again.

    Also what stands where none was given: standard input that is closed, or opened on nothing.
    """
    number = descriptor(path)
    try:
        found = Path(path).stat() if number is None else os.fstat(number)
    except (OSError, ValueError):
        return None
    mode = found.st_mode
    once = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if stat.S_ISCHR(mode) and number is not None:
        once = os.isatty(number) or os.path.samestat(found, Path(os.devnull).stat())
    return (found.st_dev, found.st_ino) if once else None


def _form(name: str) -> bool:
    """Whether DuckDB knows by its name how to read a file."""
    path = Path(name.lower())
    return (Path(path.stem) if path.suffix in _PACKED else path).suffix in _FORMS


def _opened(path: str, number: int | None) -> BinaryIO:
    # A socket cannot be opened by its path.
    return Path(path).open("rb") if number is None else os.fdopen(os.dup(number), "rb")
