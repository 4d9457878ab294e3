"""Turn a statement whose calls are extracted into a physical plan.

Blocks are planned one by one, inner ones first (`optimizer.block`). A call that no
block could plan keeps its UDF call over texts and runs by fixpoint re-execution, which is
exact for every statement that DuckDB can run.
"""

from __future__ import annotations

from contextlib import suppress

from covey.errors import QueryError
from covey.logical.query_blocks import Expr, Kind, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.block import BlockPlanner
from covey.optimizer.constants import ask_constants
from covey.optimizer.demand import refuse_blobs
from covey.optimizer.draws import materialize_draws, materialize_shared
from covey.optimizer.outer_joins import simplify_outer_joins
from covey.optimizer.pieces import plan_pieces
from covey.optimizer.pipeline_planner import ask_order
from covey.optimizer.predicate_pushdown import outer_predicates
from covey.optimizer.workspace import Workspace
from covey.plan.nodes import UNREAD, PhysicalPlan, Prune
from covey.sql.edited_text import Edits, Replacement
from covey.sql.extract import ExtractedCalls, udf_call
from covey.sql.from_clause import NotPlanned
from covey.sql.guards import Context, Guards
from covey.sql.hints import with_hint
from covey.sql.statements import is_query, query_span
from covey.sql.structure import find_blocks
from covey.sql.temporary import TemporaryObjects
from covey.sql.text import one_line, quote_name
from covey.sql.volatile import Changes

# Where only TRUE makes a difference.
_CONDITIONS = ("HAVING", "QUALIFY")


def make_plan(extracted: ExtractedCalls, objects: TemporaryObjects) -> PhysicalPlan:
    """Plan one statement; creates empty temporary tables on its connection.

    Args:
        extracted: the statement; its edits become those of the final statement.
        objects: what it makes on the connection, and drops when it is through.

    Raises:
        QueryError: DuckDB refuses the statement, or a document is a BLOB.
    """
    # The shape of a statement is read on the word of DuckDB's parser.
    extracted.binder.parse()
    blocks = find_blocks(extracted.tokens, extracted.calls)
    work = Workspace(extracted, blocks, objects)
    _check_text(work)
    extracted.refuse_columns_in_braces(lambda call: id(work.owner[call.index]))
    _name_outputs(work)
    with work.attempt():
        materialize_draws(work)
        if work.binder.in_transaction():
            # Until it commits, the rows of a new table have no row ids that count from 0.
            work.on_demand.update((call.index, "a transaction is open") for call in work.calls)
        else:
            _plan_all(blocks, work)
        on_demand = _on_demand(work)
    effects = not is_query(extracted.tokens)
    changes = work.changes(work.tokens.whole, ())
    return PhysicalPlan(
        sql=extracted.tokens.text,
        calls=work.calls,
        steps=work.steps,
        final=work.edited.render(),
        effects=effects,
        rehearsal=_rehearsal(work, effects, bool(on_demand)),
        on_demand=on_demand,
        sources=work.tables_in(work.applied(work.tokens.whole)) if on_demand else frozenset(),
        draws=changes >= Changes.WITH_ROW,
        traces=work.binder.has_effects,
        piece=None if effects else plan_pieces(work),
    )


def _name_outputs(work: Workspace) -> None:
    """Let output columns without an alias go by what the user wrote, not by a UDF call."""
    for item in (item for block in work.blocks for item in block.items):
        if work.binder.is_unnamed(item):
            written = one_line(work.tokens.cut(item))
            work.edited.replace(TextSpan(item.end, item.end), f" AS {quote_name(written)}")


def _on_demand(work: Workspace) -> dict[int, str]:
    """Calls that are not planned, with the reason.

    Raises:
        QueryError: each round would ask such a call about other documents.
    """
    for call in work.calls:
        if work.owner[call.index] is None:
            work.on_demand[call.index] = "it stands outside a SELECT"
    on_demand = {i: reason for i, reason in work.on_demand.items() if i not in work.planned}
    for index in on_demand:
        block = work.owner[index]
        for span in work.calls[index].arguments if on_demand[index] != UNREAD else ():
            if work.document_draws(span, block):
                raise work.tokens.error(
                    "This document is another one each time it is read, and is read in rounds: "
                    + on_demand[index],
                    span,
                    "Draw it first, CREATE TEMP TABLE … AS SELECT …, and ask about the table.",
                )
    return on_demand


def _rehearsal(work: Workspace, effects: bool, on_demand: bool) -> str | None:
    """See `PhysicalPlan.rehearsal`."""
    span = query_span(work.tokens)
    if span is None or not (effects or (on_demand and work.binder.has_effects)):
        return None
    traces = work.binder.volatile.effects(work.tokens, span) if on_demand else []
    # Answers to one draw are no answers to the next.
    draws = on_demand and work.changes(span, (), traces) >= Changes.WITH_ROW
    text = work.edited.render(span, {call: ["NULL"] for call in traces})
    bound = not traces or work.binder.binds(text)
    return text if bound and not draws else None


def _plan_all(blocks: list[QueryBlock], work: Workspace) -> None:
    for block in reversed(blocks):
        ask_constants(block, work)
    start = work.mark()
    for block in blocks:
        _plan_block(block, work)
    try:
        work.binder.check()
    except QueryError:
        # Some block's edits do not bind in the whole; find out which and do without.
        work.revert(start)
        for block in blocks:
            _plan_if_it_binds(block, work)


def _check_text(work: Workspace) -> None:
    """Let DuckDB bind the statement with its UDF calls.

    Raises:
        QueryError: DuckDB refuses it.
    """
    try:
        if any(call.constant for call in work.calls):
            with suppress(QueryError):
                return work.binder.check()
            # A constant is read through a subquery, so that it is not folded; some places allow
            # no subquery, and there one prompt too many may be asked.
            for call in work.calls:
                work.edited.replace(call.span, *udf_call(call, may_fold=True))
        work.binder.check()
    except QueryError as error:
        raise with_hint(error, work.blocks, work.binder) from None


def _plan_if_it_binds(block: QueryBlock, work: Workspace) -> None:
    mark = work.mark()
    _plan_block(block, work)
    try:
        work.binder.check()
    except QueryError:
        work.revert(mark)
        reason = "its block could not be rewritten"
        work.on_demand.update(dict.fromkeys(work.direct(block), reason))


def _plan_block(block: QueryBlock, work: Workspace) -> None:
    direct = work.direct(block)
    if all(c.index in work.planned for c in work.calls if block.span.holds(c.span)):
        return
    if block.cte is not None and not work.tokens.named_outside(*block.cte):
        # DuckDB never runs it, so that nothing in it is asked on demand either.
        work.on_demand.update(dict.fromkeys(direct, UNREAD))
        return
    guards = Guards(
        work.calls,
        direct,
        lambda e: ask_order(e, work.calls),
        work.edited,
        lambda e: not work.draws(e.span, block),
    )
    materialize_shared(work, block)
    outer = outer_predicates(block, work)
    simplify_outer_joins(block, work, outer)
    mark = work.mark()
    try:
        BlockPlanner(work, block, direct, guards, outer).plan()
        prunes = any(isinstance(step, Prune) for step in work.steps[mark.steps :])
        if work.planned == mark.planned and not prunes:
            work.revert(mark)
        for call in direct - work.planned:
            work.on_demand.setdefault(call, "DuckDB decides which rows are left for it")
    except NotPlanned as unplanned:
        work.revert(mark)
        for call in direct:
            work.on_demand[call] = str(unplanned)
    for call in direct - work.planned:
        refuse_blobs(work, block, work.calls[call])
    _guard(block, direct - work.planned, guards, work)


def _guard(block: QueryBlock, calls: frozenset[int], guards: Guards, work: Workspace) -> None:
    """Wrap UDF calls that run on demand so that they are read only where they matter."""
    if not calls:
        return
    parts = [block.conditions, *(join.on for join in block.joins if not block.inner)]
    roots = [(conjunction(each), Context.TRUTH) for each in parts if each]
    for clause, expressions in block.outputs.items():
        context = Context.TRUTH if clause in _CONDITIONS else Context.VALUE
        roots += [(expr, context) for expr in expressions]
    wrapped = list(filter(None, (_wrapped(guards.wrap(*root), calls, work) for root in roots)))
    # The guards quote parts of the text in other places of it; where that does not bind,
    # asking more than needed is still exact.
    together = {span: new for udf_calls in wrapped for span, new in udf_calls.items()}
    if _put(together, work) or len(wrapped) < 2:
        return
    for udf_calls in wrapped:
        _put(udf_calls, work)


def _wrapped(
    udf_calls: dict[int, Replacement], calls: frozenset[int], work: Workspace
) -> dict[TextSpan, Replacement]:
    """The UDF calls among some calls that a guard was put on, by place."""
    new = {work.calls[call].span: udf_calls[call] for call in calls & udf_calls.keys()}
    return {span: each for span, each in new.items() if each != work.edited.replacement(span)}


def _put(edits: Edits, work: Workspace) -> bool:
    """Make some edits if the statement still binds with them."""
    try:
        if edits:
            work.binder.check(edits)
    except QueryError:
        return False
    for span, new in edits.items():
        work.edited.replace(span, *new)
    return True


def conjunction(parts: tuple[Expr, ...]) -> Expr:
    """The AND of some conjuncts of a block, in the order of the text."""
    calls = frozenset[int]().union(*(part.calls for part in parts))
    return Expr(Kind.AND, TextSpan(parts[0].span.start, parts[-1].span.end), parts, calls)
