"""The products that queries, keys and values come from, before they are turned."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from covey.kernels.base import Activation, Geometry, Weight

Linear = Callable[[Activation, Weight], Tensor]


def project_heads(
    linear: Linear, x: Activation, weight: Weight, rows: Tensor | None, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of some rows, keys and values of all.

    Args:
        linear: the product.
        x: (n, in).
        weight: ((heads + 2 * kv_heads) * d_head, in), queries above keys above values.
        rows: (q,) int64, the rows that ask; None for all, in one product.

    Returns:
        (q, heads, d_head) and two (n, kv_heads, d_head), views of one or two products.
    """
    width = geometry.heads * geometry.d_head
    if rows is None:
        whole = linear(x, weight)
        queries, others = whole[:, :width], whole[:, width:]
    else:
        others = linear(x, weight.rows(width, len(weight.values)))
        queries = linear(x.take(rows), weight.rows(0, width))
    return split_heads(queries, others, geometry)


def split_heads(
    queries: Tensor, others: Tensor, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of (q, heads * d_head) and (n, 2 * kv_heads * d_head) by heads."""
    k, v = others.view(len(others), 2, geometry.kv_heads, geometry.d_head).unbind(1)
    return queries.view(len(queries), geometry.heads, geometry.d_head), k, v
