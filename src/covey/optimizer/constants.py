"""A condition on a constant prompt goes before all that is asked for the rows it decides.

    SELECT * FROM (SELECT id, AI.IF(… t.a) AS r FROM t) WHERE r AND AI.IF(PROMPT('is it on?'))

Where it is not TRUE nobody reads the rows, so that one prompt is asked and not one a row. A
block inside is planned before the one around it; that one's constant conditions go first.
"""

from __future__ import annotations

from covey.logical.query_blocks import Expr, QueryBlock
from covey.logical.text_span import TextSpan
from covey.optimizer.demand import Demand
from covey.optimizer.workspace import Workspace


def ask_constants(block: QueryBlock, work: Workspace) -> None:
    """Ask the constant conditions of a block that holds calls of other blocks.

    Calls of one block alone have their order in its pipeline.
    """
    if block.recursive or (block.cte is not None and not work.tokens.named_outside(*block.cte)):
        return
    for condition in (*block.conditions, *block.having):
        if is_constant(condition, work) and _is_fed(block, condition, work):
            for number in sorted(condition.calls - work.planned):
                Demand(work, block, "(SELECT 1)", []).ask(work.calls[number], [])


def is_constant(condition: Expr, work: Workspace) -> bool:
    """Whether a condition holds of all rows or of none, by calls without documents."""
    if not condition.calls or any(work.calls[i].arguments for i in condition.calls):
        return False
    text = work.edited.render(condition.span)
    return work.binder.binds(f"SELECT ({text})")


def _is_fed(block: QueryBlock, condition: Expr, work: Workspace) -> bool:
    """Whether calls of other blocks may be asked before a condition, or it is one of theirs."""
    own = work.direct(block)
    if condition.calls - own:
        return True
    if condition in block.having:
        own = frozenset()
    spans: list[TextSpan] = [block.span, *work.tables_read(block.span, block.scope)]
    others = [c.span for c in work.calls if c.index not in own | condition.calls]
    return any(span.holds(call) for call in others for span in spans)
