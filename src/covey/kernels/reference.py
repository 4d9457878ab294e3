"""The specification: every operation in plain torch, on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.arrays import Int64
from covey.kernels.attention_blocks import attention_blocks
from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.scales import dequantise, quantise

_MASKED_ROWS = 128  # most queries of a call with a mask

Linear = Callable[[Activation, Weight], Tensor]


@dataclass(frozen=True, slots=True)
class SdpaCall:
    """One call of scaled-dot-product attention: an `AttentionBlock` on the device.

    Attributes:
        queries: rows of q.
        keys: rows of k and v, a slice where they are contiguous.
        prefix: spans of the KV cache, before the keys.
        mask: (queries, prefix + keys) additive, in the kernels' dtype, or None.
        causal: lower-triangular.
        lead: where causal, leading rows of `keys` that are asked as well and thrown away.
    """

    queries: slice
    keys: slice | Tensor
    prefix: tuple[slice, ...]
    mask: Tensor | None
    causal: bool
    lead: int


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """A batch, ready for all layers.

    Attributes:
        rows: (q,) int64, the asking rows, or None for all.
        cos: (n, 1, d_head), of each row's angles.
        sin: (n, 1, d_head), negative in its first half, for the swapped halves.
        stored, slots: (m,) int64 rows whose keys and values are stored, and where.
        calls: the attention, cut into dense calls.
    """

    rows: Tensor | None
    cos: Tensor
    sin: Tensor
    stored: Tensor
    slots: Tensor
    calls: tuple[SdpaCall, ...]


class ReferenceKernels:
    """Plain torch. With `quantised`, linear layers round as FP8 hardware would.

    Args:
        config: the model's shape.
        device: where everything lies.
        dtype: of the residual stream, linear outputs, keys and values.
        quantised: round the inputs of linear layers to FP8 in groups of 128.
    """

    def __init__(
        self,
        config: AttentionConfig,
        device: torch.device,
        dtype: torch.dtype,
        quantised: bool = False,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.quantised = quantised
        self._config = config
        self._frequencies = config.frequencies.to(device, torch.float32)

    def plan(self, batch: ForwardBatch, rows: Int64 | None = None) -> ReferencePlan:
        """See `Kernels.plan`."""
        positions = torch.from_numpy(batch.positions).to(self.device, torch.float32)
        angles = torch.outer(positions, self._frequencies)
        cos, sin = angles.cos(), angles.sin()
        blocks = attention_blocks(batch, rows, _MASKED_ROWS)
        calls = []
        for block in blocks:
            keys = block.keys
            prefix = sum(stop - start for start, stop in block.prefix)
            calls.append(
                SdpaCall(
                    slice(*block.queries),
                    slice(*keys) if isinstance(keys, tuple) else self._index(keys),
                    tuple(slice(*span) for span in block.prefix),
                    None if block.mask is None else self._additive(block.mask, prefix),
                    block.causal,
                    block.lead,
                )
            )
        stored = np.flatnonzero(batch.slot_mapping >= 0)
        return ReferencePlan(
            None if rows is None else self._index(rows),
            torch.cat([cos, cos], dim=1)[:, None].to(self.dtype),
            torch.cat([-sin, sin], dim=1)[:, None].to(self.dtype),
            self._index(stored),
            self._index(batch.slot_mapping[stored].astype(np.int64)),
            tuple(calls),
        )

    def norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Activation]:
        """See `Kernels.norm`."""
        if delta is not None:
            residual += delta
        return residual, self._activation(self._rms(residual, weight))

    def linear(self, x: Activation, weight: Weight) -> Tensor:
        """See `Kernels.linear`."""
        if weight.scales is None:
            return F.linear(x.values, weight.values)
        wide = dequantise(x.values, x.scales), dequantise(weight.values, weight.scales)
        return F.linear(*wide).to(self.dtype)

    def project(
        self, x: Activation, weight: Weight, residual: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """See `Kernels.project`."""
        return residual, self.linear(x, weight)

    def qkv(
        self,
        x: Activation,
        weight: Weight,
        norms: tuple[Tensor, Tensor] | None,
        plan: ReferencePlan,
        kv: KvLayer | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernels.qkv`."""
        q, k, v = project_heads(self.linear, x, weight, plan.rows, self._config)
        return *self.rotate_and_store(q, k, norms, v, plan, kv), v

    def rotate_and_store(
        self,
        q: Tensor,
        k: Tensor,
        norms: tuple[Tensor, Tensor] | None,
        v: Tensor,
        plan: ReferencePlan,
        kv: KvLayer | None,
    ) -> tuple[Tensor, Tensor]:
        """The second half of `qkv`: q and k, normed and rotated; kept rows into the KV cache."""
        if norms is not None:
            q, k = self._rms(q, norms[0]), self._rms(k, norms[1])
        k = _rotate(k, plan.cos, plan.sin)
        if plan.rows is None:
            q = _rotate(q, plan.cos, plan.sin)
        else:
            q = _rotate(q, plan.cos[plan.rows], plan.sin[plan.rows])
        if kv is not None:
            kv.k[plan.slots] = k[plan.stored]
            kv.v[plan.slots] = v[plan.stored]
        return q, k

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, plan: ReferencePlan, kv: KvLayer | None
    ) -> Activation:
        """See `Kernels.attend`."""
        out = torch.empty_like(q)
        for call in plan.calls:
            # A lead occurs only where all rows ask, so that keys number queries too.
            queries = call.keys if call.lead else call.queries
            found = F.scaled_dot_product_attention(
                _heads_first(q[queries]),
                _heads_first(_seen(k, None if kv is None else kv.k, call)),
                _heads_first(_seen(v, None if kv is None else kv.v, call)),
                attn_mask=call.mask,
                is_causal=call.causal,
                scale=self._config.scale,
                enable_gqa=True,
            )
            out[call.queries] = found[0].transpose(0, 1)[call.lead :]
        return self._activation(out.flatten(1))

    def silu_and_mul(self, x: Activation, weight: Weight) -> Activation:
        """See `Kernels.silu_and_mul`."""
        gate, up = self.linear(x, weight).chunk(2, dim=1)
        return self._activation(F.silu(gate, inplace=True).mul_(up))

    def logits(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, head: Tensor
    ) -> Tensor:
        """See `Kernels.logits`."""
        if delta is not None:
            residual = residual + delta
        return self._rms(residual, weight).float() @ head.float().T

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._config.norm_eps)
        return (wide * inverse).to(x.dtype).mul_(weight)

    def _activation(self, x: Tensor) -> Activation:
        """The input of a linear layer, in FP8 where quantised."""
        if not self.quantised:
            return Activation(x)
        return Activation(*quantise(x, FP8_GROUP, torch.float8_e4m3fn))

    def _index(self, rows: Int64) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    def _additive(self, mask: object, prefix: int) -> Tensor:
        seen = torch.as_tensor(mask)
        bias = torch.zeros(seen.shape[0], prefix + seen.shape[1], dtype=self.dtype)
        bias[:, prefix:].masked_fill_(~seen, float("-inf"))
        return bias.to(self.device)


def project_heads(
    linear: Linear, x: Activation, weight: Weight, rows: Tensor | None, config: AttentionConfig
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
    width = config.heads * config.d_head
    if rows is None:
        whole = linear(x, weight)
        queries, others = whole[:, :width], whole[:, width:]
    else:
        others = linear(x, weight.rows(width, len(weight.values)))
        queries = linear(x.take(rows), weight.rows(0, width))
    return split_heads(queries, others, config)


def split_heads(
    queries: Tensor, others: Tensor, config: AttentionConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of (q, heads * d_head) and (n, 2 * kv_heads * d_head) by heads."""
    k, v = others.view(len(others), 2, config.kv_heads, config.d_head).unbind(1)
    return queries.view(len(queries), config.heads, config.d_head), k, v


def _seen(new: Tensor, kv_cache: Tensor | None, call: SdpaCall) -> Tensor:
    """The keys or values of one call: KV cache spans first, then rows of the batch."""
    own = new[call.keys]
    if kv_cache is None or not call.prefix:
        return own
    return torch.cat([*(kv_cache[span] for span in call.prefix), own])


def _heads_first(x: Tensor) -> Tensor:
    """(rows, heads, d_head) as (1, heads, rows, d_head), a view."""
    return x.transpose(0, 1)[None]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the half-split form: dimension i rotates with i + d_head / 2."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos).addcmul_(torch.cat([second, first], dim=-1), sin)
