"""The rows a call must be asked for, as a query over row ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from covey.logical.calls import AICall
from covey.logical.query_blocks import QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.workspace import LoadedSource, Workspace
from covey.plan.join_graph import Target
from covey.plan.nodes import Ask, DocumentColumn, Stop
from covey.sql.columns import makes_columns
from covey.sql.from_clause import NotPlanned
from covey.sql.text import quote_name

_NAME = re.compile(r'"[^".]+"|\w+')


class Demand:
    """Rows of loaded sources that pass some conditions.

    Args:
        block: whose names the conditions may use.
        relations: the text of FROM.
        conditions: texts that must hold.
        decided: sources whose rows the first match decides; their row ids come first.
    """

    def __init__(
        self,
        work: Workspace,
        block: QueryBlock,
        relations: str,
        conditions: list[str],
        decided: Sequence[LoadedSource] = (),
    ) -> None:
        self.work = work
        self.block = block
        self.relations = relations
        self.conditions = conditions
        self.decided = tuple(decided)

    def rows_of(self, sources: Sequence[LoadedSource]) -> tuple[str, Target | None]:
        """The distinct row ids of some sources, as a query; for a `Pipeline` also in any order.

        Raises:
            NotPlanned: DuckDB refuses the query.
        """
        where = " AND ".join(f"({text})" for text in self.conditions)
        query = f"{self.work.with_clause(self.block)}SELECT DISTINCT {_row_ids(sources)} " + (
            f"FROM {self.relations}" + (f" WHERE {where}" if where else "")
        )
        self.work.check_rows(query)
        return query, None

    def ask(self, call: AICall, loaded: list[LoadedSource]) -> None:
        """Add an ask step for the rows, and key the call by row ids of the loaded sources.

        Raises:
            NotPlanned: an argument needs several sources.
            QueryError: an argument is a BLOB.
        """
        plain = all(_plain_column(self.work.edited.render(span)) for span in call.arguments)
        if not plain and self.work.tokens.is_inside(call.span, "TRY"):
            raise NotPlanned("TRY takes NULL for a document that cannot be made")
        places = [self._place(span, loaded) for span in call.arguments]
        sources = list(dict.fromkeys([*self.decided, *(source for source, _ in places)]))
        query, target = self.rows_of(sources)
        keys = tuple(sources.index(source) for source, _ in places)
        anchor = call.question.anchor
        written = self.work.tokens.cut(call.span)
        documents = tuple(column for _, column in places)
        lookup = self.work.row_udf(call, documents, keys)
        ask = Ask(call.index, lookup, documents, keys, query, written, anchor, target=target)
        self.work.steps.append(ask)
        udf = self.work.calls[lookup].row_udf
        self.work.edited.replace(call.span, f"{udf}({_row_ids(sources)})")
        self.work.planned |= {call.index}

    def _place(
        self, span: TextSpan, loaded: list[LoadedSource]
    ) -> tuple[LoadedSource, DocumentColumn]:
        """Where an argument's documents come from; what draws them is evaluated once a row."""
        source, column = locate(self.work, span, loaded)
        if not self.work.document_draws(span, self.block):
            return source, column
        query = f"SELECT {source.row_id} AS r, {column.expression} AS drawn FROM {column.table}"
        read = [source.source.span, span]
        kept = self.work.add_load(
            f"drawn texts of {source.source.alias}",
            f"{query} AS {source.alias}",
            [("r", "BIGINT"), ("drawn", "VARCHAR")],
            read,
        )
        drawn = f"(SELECT any_value(drawn) FROM {kept.table} WHERE r = {source.row_id})"
        return source, replace(column, expression=drawn)

    def stop_last_ask(self) -> None:
        """Let the last ask stop for the rows that are decided: those of this demand.

        Raises:
            NotPlanned: DuckDB refuses the query for them.
        """
        stop = Stop(len(self.decided), *self.rows_of(self.decided))
        last = self.work.steps[-1]
        if isinstance(last, Ask):
            self.work.steps[-1] = replace(last, stop=stop)


def _row_ids(sources: Sequence[LoadedSource]) -> str:
    # A prompt without documents still is asked only if some row needs it.
    return ", ".join(source.row_id for source in sources) or "0"


def locate(
    work: Workspace, span: TextSpan, loaded: list[LoadedSource]
) -> tuple[LoadedSource, DocumentColumn]:
    """The one source whose rows give an argument.

    Raises:
        NotPlanned: there is not exactly one.
        QueryError: the argument is a BLOB.
    """
    text = work.edited.render(span)
    words = work.tokens.words(span)
    if words & {"OVER", "UNNEST"}:
        raise NotPlanned("one of its documents depends on more than one row")
    if makes_columns(work.tokens, span):
        raise NotPlanned("it stands for one call for each of several columns")
    found = []
    sources = tuple(source.source for source in loaded)
    for source in loaded:
        if work.names_other(span, source.source.alias, sources):
            continue
        kind = _type_in(source, text, work)
        if kind is not None:
            found.append((source, kind))
    if len(found) != 1:
        raise NotPlanned("one of its documents comes from several tables at once")
    source, kind = found[0]
    _refuse_blob(kind, span, work)
    names = _plain_column(text)
    if source.nullable and names is None:
        raise NotPlanned("a document under an outer join is not a plain column")
    own: tuple[list[str], ...] = ([], [source.source.alias.lower()])
    if names is not None and names[:-1] in own and names[-1] in source.columns and text.isascii():
        # Written alike however the user writes it, so that it is read once. DuckDB takes
        # capitals of other alphabets for other letters.
        text = f"{source.alias}.{quote_name(names[-1])}"
    expression = f"CAST(({text}) AS VARCHAR)"
    return source, DocumentColumn(source.load.table, source.source.alias, expression)


def refuse_blobs(work: Workspace, block: QueryBlock, call: AICall) -> None:
    """Check the documents of a call that runs on demand, as far as one source gives them.

    Raises:
        QueryError: one is a BLOB.
    """
    for span in call.arguments:
        for source in block.sources:
            written = work.tokens.cut(source.span)
            names = "" if source.names is None else work.tokens.cut(source.names)
            relation = f"{written} AS {quote_name(source.alias)}{names}"
            query = f"SELECT ({work.edited.render(span)}) FROM {relation}"
            for _, kind in work.columns(block, query) or []:
                _refuse_blob(kind, span, work)


def _refuse_blob(kind: str, span: TextSpan, work: Workspace) -> None:
    if kind == "BLOB":
        hint = "Decode it: decode(column) reads UTF-8."
        raise work.tokens.error("A BLOB is not a text", span, hint)


def _type_in(source: LoadedSource, text: str, work: Workspace) -> str | None:
    """The SQL type of an expression over the rows of one source; None where it is none."""
    names = _plain_column(text)
    if names is not None and len(names) == 2 and names[0] == source.source.alias.lower():
        return source.columns.get(names[1])
    # With a row id beside it an aggregate does not bind: its document is no row's.
    query = f"SELECT ({text}), {source.row_id} FROM {source.relation}"
    columns = work.binder.columns(query)
    return None if columns is None else columns[0][1]


def _plain_column(text: str) -> list[str] | None:
    """The names in `column` or `alias.column`, which is NULL where its row is missing."""
    parts = _NAME.findall(text.strip())
    if not 0 < len(parts) < 3 or ".".join(parts) != text.strip():
        return None
    return [part.strip('"').lower() for part in parts]
