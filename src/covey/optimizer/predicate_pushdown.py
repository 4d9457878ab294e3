"""Predicate pushdown: conditions of the block around a derived table or CTE hold of its rows too.

    before  SELECT id FROM (SELECT id, s FROM t WHERE AI.IF(…)) q WHERE q.id < 3
    asked   for the rows of t with (SELECT (q.id < 3) FROM (SELECT id) AS q)

A row that the block around rejects in any case needs no answer. The statement itself stays
as it is. A block that is read by several is asked for the rows that one of them may need, an
operand of UNION for those that the block around the UNION may. It must not be done where a
row of the block is made of several rows or depends on the others (GROUP BY, windows, LIMIT),
where it is not known who reads it, where a UNION casts the column, where an outer join
around it would bring the rejected row back, and where the condition or a column that it reads
has another value each time, by random() for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType

from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.constants import is_constant
from covey.optimizer.result_rows import made_of_rows
from covey.optimizer.workspace import Workspace
from covey.sql.text import quote_name


@dataclass(frozen=True, slots=True)
class OuterPredicate:
    """A condition from outside, as SQL over the sources of a block.

    Attributes:
        text: the condition.
        constant: whether it reads the answer to a constant prompt.
    """

    text: str
    constant: bool


def outer_predicates(block: QueryBlock, work: Workspace) -> list[OuterPredicate]:
    """Conditions on rows of FROM; asked for before the sources are loaded."""
    return [*_constants_around(block, work), *_of_readers(block, work)]


def _constants_around(block: QueryBlock, work: Workspace) -> list[OuterPredicate]:
    """The constant prompts that decide whether a subquery of WHERE is read at all."""
    around = [b for b in work.blocks if "WHERE" in b.clauses]
    around = [b for b in around if b.clauses["WHERE"].holds(block.span)]
    beside = (c for b in around for c in b.conditions if not c.span.holds(block.span))
    found = (_constant(c, work) for c in beside if c.calls and c.calls <= work.planned)
    return [each for each in found if each is not None]


def _constant(condition: Expr, work: Workspace) -> OuterPredicate | None:
    """A constant prompt as a condition from outside; names of tables may mean others inside."""
    if "FROM" in work.tokens.words(condition.span) or not is_constant(condition, work):
        return None
    return OuterPredicate(work.edited.render(condition.span), constant=True)


def _of_readers(block: QueryBlock, work: Workspace) -> list[OuterPredicate]:
    """What the blocks want that have a block in FROM."""
    span = block.clauses.get("SELECT")
    limited = {"LIMIT", "OFFSET"} & set(block.clauses)
    if not block.sources or span is None or limited or not made_of_rows(block, work):
        return []
    asks = any(span.holds(call.span) for call in work.calls)
    if asks or (not block.alone and block.union is None):
        return []
    by_reader = []
    for around, number in _readers(block, work):
        alias = quote_name(around.sources[number].alias)
        conditions = around.conditions if around.keeps(number) else ()
        lasting = (c for c in conditions if not work.draws(c.span, around))
        found = (_inside(c, span, alias, block, work) for c in lasting)
        by_reader.append([each for each in found if each is not None])
    if len(by_reader) < 2:
        return [each for texts in by_reader for each in texts]
    # A row is needed where one of the readers does not reject it.
    if not all(by_reader):
        return []
    alternatives = (" AND ".join(each.text for each in texts) for texts in by_reader)
    constant = any(each.constant for texts in by_reader for each in texts)
    return [OuterPredicate(" OR ".join(f"({text})" for text in alternatives), constant)]


def _readers(block: QueryBlock, work: Workspace) -> list[tuple[QueryBlock, int]]:
    """All blocks that read a block, and in which place of FROM; empty where others may."""
    body = block.span if block.union is None else block.union
    places = [(b, number, item) for b in work.blocks for number, item in enumerate(b.sources)]
    for around, number, item in places:
        if _is_body(body, item.span, 1, work):
            named = "(" in work.edited.text[item.span.end : item.end]
            return [] if named else [(around, number)]
    if block.cte is None or block.recursive:
        return []
    name, span = block.cte
    inside = work.tokens.inside(span)
    if len(inside) < 5 or inside[1].word != "AS" or not _is_body(body, span, 3, work):
        return []
    named_at = work.tokens.tables_named(name, span)
    by_name = [
        (around, number)
        for around, number, item in places
        if item.span.start in named_at and work.tokens.cut(item.span).lower() == name.lower()
    ]
    return by_name if len(by_name) == len(named_at) else []


def _is_body(body: TextSpan, span: TextSpan, opening: int, work: Workspace) -> bool:
    """Whether `body` is all that stands in the brackets at the end of a span."""
    inside = work.tokens.inside(span)
    if len(inside) <= opening + 2 or inside[opening - 1].kind is not TokenType.L_PAREN:
        return False
    return (inside[opening].start, inside[-2].end) == body


def _inside(
    condition: Expr, select: TextSpan, alias: str, block: QueryBlock, work: Workspace
) -> OuterPredicate | None:
    """A condition on the rows of a block's output as one on its FROM; None where it is none."""
    tokens = work.tokens
    if condition.calls - work.planned:
        return None
    if condition.calls:
        return _constant(condition, work)
    names = {token.text.strip('"').lower() for token in tokens.inside(condition.span)}
    items = _items(select, names, block, work)
    if not items:
        return None
    alias += f"({', '.join(quote_name(name) for name, _ in items)})"
    columns = ", ".join(item for _, item in items)
    written = work.edited.render(condition.span)
    relations = _relations(block, work)
    alone = f"SELECT ({written}) FROM (SELECT {columns} FROM {relations}) AS {alias}"
    text = f"(SELECT ({written}) FROM (SELECT {columns}) AS {alias})"
    queries = (alone, f"SELECT {text} FROM {relations}")
    binds = all(work.columns(block, query) is not None for query in queries)
    return OuterPredicate(text, constant=False) if binds else None


def _relations(block: QueryBlock, work: Workspace) -> str:
    return ", ".join(work.relation(source) for source in block.sources)


def _items(
    select: TextSpan, names: set[str], block: QueryBlock, work: Workspace
) -> list[tuple[str, str]]:
    """Names of a block's output, of those in sight, and what they stand for, without aliases.

    Empty where it is not known which these are. The names of a UNION are those of its first
    operand, by place; only columns that it does not cast are given, since a condition on the
    cast value is another one, and none that has another value each time.
    """
    tokens = work.tokens
    first, last = tokens.indexes(select)
    query = f"SELECT {work.edited.render(select)} FROM {_relations(block, work)}"
    own = work.columns(block, query)
    sources = block.sources
    if last - first == 1 and tokens[first].text == "*" and len(sources) == 1:
        alias = quote_name(sources[0].alias)
        items = [f"{alias}.{quote_name(name)}" for name, _ in own or ()]
        lasting = [True] * len(items)
    else:
        ranges = tokens.split(first, last, TokenType.COMMA)
        if any(tokens[end - 1].text == "*" for _, end in ranges):
            return []
        items = [_without_alias(begin, end, work) for begin, end in ranges]
        lasting = [not work.draws(tokens.span(*each), block) for each in ranges]
    whole = own
    if block.union is not None:
        whole = work.columns(block, work.edited.render(block.union))
    if own is None or whole is None or not len(own) == len(whole) == len(items):
        return []
    return [
        (name.lower(), item)
        for item, (_, kind), (name, common), lasts in zip(items, own, whole, lasting, strict=True)
        if kind == common and lasts and name.lower() in names
    ]


def _without_alias(first: int, last: int, work: Workspace) -> str:
    """An item of SELECT, so that no item beside it can mean its alias.

    In a SELECT without FROM an alias goes before a column of the query around it.
    """
    tokens = work.tokens
    end = next(tokens.words_at(first, last, ("AS",)), last)
    written = work.edited.render(tokens.span(first, end))
    dotted = last - first == 3 and tokens[first + 1].kind is TokenType.DOT
    return written if end < last or last - first == 1 or dotted else f"(SELECT {written})"
