"""Plan one block: load its sources, ask for its conditions, then for its outputs.

The entries of FROM are loaded into temporary tables, less what conditions without a
model reject. Calls are then keyed by row ids instead of texts and asked in bulk,
cheapest condition first, each only for the rows that the conditions before it let
through. Every generated query is bound before it is used: one that DuckDB refuses
(of a correlated block, say) leaves its condition to fixpoint re-execution.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

from covey.logical.query_blocks import Expr, JoinKind, QueryBlock
from covey.optimizer.block_rows import BlockRows
from covey.optimizer.constants import is_constant
from covey.optimizer.demand import Demand
from covey.optimizer.limit import can_prune, plan_prune, reject_unanswered
from covey.optimizer.matches import plan_matches
from covey.optimizer.pipeline_planner import PipelinePlanner
from covey.optimizer.predicate_pushdown import OuterPredicate
from covey.optimizer.semi_join import plan_semi_join
from covey.optimizer.workspace import Workspace
from covey.sql.from_clause import NotPlanned
from covey.sql.guards import Context, Guards

# Clauses whose calls are asked for every row that passes the conditions; of HAVING,
# QUALIFY and windows DuckDB knows better which rows are left.
_ROW_CLAUSES = ("SELECT", "GROUP BY", "ORDER BY")
# Joins that show no column of their source, so that one match is as good as many.
_FIRST_DECIDES = (JoinKind.SEMI, JoinKind.ANTI)
# Words of a GROUP BY that may have a total beside its groups, or instead of them.
_TOTALS = frozenset({"ALL", "ROLLUP", "CUBE", "GROUPING SETS"})
_LATER_FILTERS = ("HAVING", "QUALIFY", "LIMIT", "OFFSET")


class BlockPlanner:
    """Plans one block; raises `NotPlanned` and leaves the undoing to its caller.

    Args:
        direct: the calls in the block that are in no block inside it.
        guards: guards of those calls.
        outer: what blocks around it want of its rows.
    """

    def __init__(
        self,
        work: Workspace,
        block: QueryBlock,
        direct: frozenset[int],
        guards: Guards,
        outer: Sequence[OuterPredicate],
    ) -> None:
        self.work = work
        self.block = block
        self.direct = direct
        self.guards = guards
        self.rows = BlockRows(work, block, guards, outer)
        self.pipeline: PipelinePlanner | None = None
        # What holds of all rows of outer joins, as SQL, with the one source it is about.
        self._kept: list[tuple[int | None, str]] = []

    def plan(self) -> None:
        """Plan what can be planned; the rest has its reason in `work.on_demand`."""
        if not self.block.sources:
            raise NotPlanned(self.block.reason)
        if not self._has_work():
            raise NotPlanned("it is not in a clause that is planned")
        self.rows.load()
        if not self.block.inner:
            self._ask_kept()
            for number in range(len(self.block.joins)):
                self._ask_join(number)
        pipeline = self.pipeline = PipelinePlanner(self.rows) if self.block.inner else None
        demand = self.rows.demand if pipeline is None else pipeline.demand
        semi_join = partial(plan_semi_join, self.rows, pipeline)
        for condition in [c for c in self.rows.wanted if c not in self.rows.asked]:
            # One that draws is evaluated by the final statement: it only has its answers.
            decides = condition not in self.rows.open
            add_operator = None
            if pipeline is not None and decides:
                add_operator = partial(pipeline.add_operator, condition)
            asked = self._try(condition, Context.TRUTH, demand, semi_join, add_operator)
            if asked and decides:
                self.rows.asked.append(condition)
        if self._plans_outputs():
            self._ask_outputs()
        if pipeline is not None:
            pipeline.close()
            plan_matches(self.rows, pipeline)
        if can_prune(self.rows, self.direct):
            plan_prune(self.rows)

    def _has_work(self) -> bool:
        on = [c for join in self.block.joins for c in join.on]
        conditions = bool(self.rows.wanted or self.direct & _calls(on))
        return conditions or self._plans_outputs() or can_prune(self.rows, self.direct)

    def _plans_outputs(self) -> bool:
        outputs = _calls(e for c in _ROW_CLAUSES for e in self.block.outputs.get(c, ()))
        later = any(clause in self.block.clauses for clause in _LATER_FILTERS)
        later |= self.work.samples(self.block)
        if later or not self.direct & outputs:
            return False
        # On demand each round would draw anew what the answers are asked for.
        return self.block.top or self.work.draws(self.block.span, self.block)

    def _try(
        self,
        root: Expr,
        context: Context,
        demand: Callable[[list[str]], Demand],
        subquery: Callable[[Expr, list[str]], None],
        add_operator: Callable[[], None] | None = None,
    ) -> bool:
        """Ask for all that is inside an expression, or leave it to fixpoint re-execution.

        Args:
            root: the expression.
            context: which of its values matter.
            demand: the rows it is evaluated for, given further conditions.
            subquery: plans an expression with a subquery inside.
            add_operator: makes what was asked an operator of the pipeline.
        """
        try:
            with self.work.attempt():
                for item in self.guards.sequence(root):
                    texts = self.rows.path(root, item, context)
                    if isinstance(item, Expr):
                        subquery(item, texts)
                    elif item not in self.work.planned:
                        demand(texts).ask(self.work.calls[item], self.rows.loaded)
                if add_operator is not None:
                    add_operator()
        except NotPlanned as unplanned:
            left = root.calls - self.work.planned
            self.work.on_demand.update(dict.fromkeys(left, str(unplanned)))
            return False
        return True

    def _ask_kept(self) -> None:
        """Ask what is wanted of one source that no join fills with NULL, or of none.

        It holds of all rows of the result, so that it goes before the joins.
        """
        for text in self.rows.conditions():
            alone = self.work.binder.binds(f"SELECT ({text})")
            number = None if alone else self.rows.only_source(text)
            if alone or number is not None:
                self._kept.append((number, text))
        wanted = [c for c in self.rows.wanted if c not in self.rows.open]
        for condition in [*self._constants_of_joins(), *wanted]:
            number = self.rows.only_source(self.rows.render(condition))
            constant = is_constant(condition, self.work)
            if number is None and not constant:
                continue
            demand = partial(self._kept_demand, number)
            if self._try(condition, Context.TRUTH, demand, _refuse):
                self.rows.asked.append(condition)
                text = self.rows.render(condition)
                self._kept.append((None if constant else number, text))

    def _constants_of_joins(self) -> list[Expr]:
        """Constant prompts in ON without which there is no row at all."""
        found, joins = list[Expr](), self.block.joins
        for number, join in enumerate(joins):
            later = {other.kind for other in joins[number + 1 :]}
            needed = join.kind in (JoinKind.INNER, JoinKind.SEMI)
            if needed and not later & {JoinKind.RIGHT, JoinKind.FULL}:
                found += [c for c in join.on if not self.rows.draws(c)]
        return [c for c in found if c.calls - self.work.planned and is_constant(c, self.work)]

    def _kept_demand(self, number: int | None, texts: list[str]) -> Demand:
        relations = "(SELECT 1)" if number is None else self.rows.before_outer(number)
        return Demand(self.work, self.block, relations, [*self._kept_by({number}), *texts])

    def _kept_by(self, sources: Container[int | None]) -> list[str]:
        """What must hold of some sources, and of none, as SQL."""
        return [text for n, text in self._kept if n is None or n in sources]

    def _ask_join(self, number: int) -> None:
        """Ask for the calls in the ON of one join, when some join of the block is no inner one."""
        join = self.block.joins[number]
        if join.merges and join.on:
            return
        done = [c for c in join.on if c.calls <= self.work.planned]
        wanted = [c for c in self.guards.in_order(join.on) if c not in done]
        for condition in wanted:
            demand = partial(self._join_demand, number, done)
            if self._try(condition, Context.TRUTH, demand, _refuse):
                done.append(condition)
        one_match = wanted and join.kind in _FIRST_DECIDES and len(done) == len(join.on)
        if one_match and reject_unanswered(wanted, self.work):
            self._join_demand(number, done, []).stop_last_ask()

    def _join_demand(self, number: int, done: list[Expr], texts: list[str]) -> Demand:
        kept = self._kept_by(range(number + 2))
        conditions = [*kept, *(self.rows.render(c) for c in done), *texts]
        first_decides = self.block.joins[number].kind in _FIRST_DECIDES
        left = self.rows.loaded[: number + 1] if first_decides else ()
        return Demand(self.work, self.block, self.rows.relations_of(number), conditions, left)

    def _ask_outputs(self) -> None:
        """Ask for calls in other clauses, for the rows that pass all conditions."""
        for clause in _ROW_CLAUSES:
            for expr in self.block.outputs.get(clause, ()):
                left = expr.calls - self.work.planned
                constant = any(not self.work.calls[number].arguments for number in left)
                if constant and self._totals():
                    self.work.on_demand.update(
                        dict.fromkeys(left, "a total is shown of no rows, too")
                    )
                else:
                    self._try(expr, Context.VALUE, self._output_demand, _refuse)

    def _totals(self) -> bool:
        """Whether aggregates make a row even of no rows, as in `SELECT count(*) FROM t`."""
        select, group = self.block.clauses.get("SELECT"), self.block.clauses.get("GROUP BY")
        if select is None or not self.work.binder.any_aggregate(select):
            return False
        if group is None or self.work.tokens.words(group) & _TOTALS:
            return True
        return self.work.edited.render(group).strip() == "()"

    def _output_demand(self, texts: list[str]) -> Demand:
        if self.pipeline is not None:
            return self.pipeline.output(texts)
        where = [c for c in self.block.where if c not in self.rows.open]
        conditions = [self.rows.render(c) for c in where]
        relations = self.work.edited.render(self.block.clauses["FROM"])
        return Demand(self.work, self.block, relations, [*conditions, *texts])


def _refuse(leaf: Expr, texts: list[str]) -> None:
    raise NotPlanned("it stands in a subquery that is not planned")


def _calls(expressions: Iterable[Expr]) -> frozenset[int]:
    return frozenset[int]().union(*(expr.calls for expr in expressions))
