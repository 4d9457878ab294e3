"""The operations a model needs, whatever runs them.

An implementation is made for one model's shape and one device. `kernels.reference` is
the specification; the others must agree with it up to their rounding.

Attention is over a tree. The new tokens of a batch lie in depth-first order and
`subtree_ends[k]` is one past the subtree of token k, so token i sees token k exactly when
`k <= i < subtree_ends[k]`. Tokens of earlier batches are read from spans of a KV cache. RoPE
positions are positions in the tree, so a token's keys are the same wherever it is packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from covey.arrays import Int32, Int64
from covey.kernels.fp8_format import FP8_BLOCK


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """What the attention and norm kernels must know of a model.

    Attributes:
        heads, kv_heads, d_head: as in the model's spec.
        norm_eps: epsilon of every RMS norm.
        frequencies: (d_head / 2,) float32, rotary angle a position.
    """

    heads: int
    kv_heads: int
    d_head: int
    norm_eps: float
    frequencies: Tensor

    @property
    def scale(self) -> float:
        """Factor on q·k."""
        return float(self.d_head**-0.5)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The new tokens of one forward pass, what they may see and what is kept of them.

    Every layer stores its kept rows before any row attends, so a batch may read slots that
    it fills itself.

    Attributes:
        tokens: (n,) int32 ids, depth-first.
        positions: (n,) int32 position in the prompt, counting tokens in the KV cache.
        subtree_ends: (n,) int32, one past each token's subtree within the batch.
        logits_indices: (a,) int64 rows whose logits are computed, increasing.
        prefix_rows: (r, 2) int64, half-open ranges of rows.
        prefix_slots: (r, 2) int64, half-open ranges of KV cache slots; every row of
            prefix_rows[j] sees every slot of prefix_slots[j].
        slot_mapping: (n,) int32, the KV cache slot where a token's keys and values are stored,
            -1 where they are not.
    """

    tokens: Int32
    positions: Int32
    subtree_ends: Int32
    logits_indices: Int64
    prefix_rows: Int64
    prefix_slots: Int64
    slot_mapping: Int32

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Weight:
    """A linear layer's matrix.

    Attributes:
        values: (out, in); float8_e4m3fn where `scales` is given.
        scales: (out / 128, in / 128) float32, a factor a block; or None.
    """

    values: Tensor
    scales: Tensor | None = None

    def rows(self, start: int, stop: int) -> Weight:
        """Some output rows, views; multiples of 128 where blocks have scales."""
        if self.scales is None:
            return Weight(self.values[start:stop])
        return Weight(
            self.values[start:stop], self.scales[start // FP8_BLOCK : -(-stop // FP8_BLOCK)]
        )


@dataclass(frozen=True, slots=True)
class Activation:
    """The input of a linear layer, quantised where the kernels multiply in FP8.

    Attributes:
        values: (n, width).
        scales: (n, width / 128) float32, a factor a group; or None.
    """

    values: Tensor
    scales: Tensor | None = None

    def take(self, rows: Tensor) -> Activation:
        """Some rows, copied."""
        scales = None if self.scales is None else self.scales[rows]
        return Activation(self.values[rows], scales)


@dataclass(frozen=True, slots=True)
class KvLayer:
    """One layer of the KV cache: (slots, kv_heads, d_head) keys and values."""

    k: Tensor
    v: Tensor


class AttentionPlan(Protocol):
    """What an implementation derives from a batch once, for all layers.

    Attributes:
        rows: (q,) int64 on the device, the batch rows that ask; None for all.
    """

    @property
    def rows(self) -> Tensor | None: ...


Plan = TypeVar("Plan", bound=AttentionPlan)


class Kernels(Protocol[Plan]):
    """The operations of a dense decoder.

    Attributes:
        device: where all tensors lie.
        dtype: of the residual stream, of linear outputs and of keys and values.
        quantised: whether linear layers take FP8 weights and activations.
    """

    device: torch.device
    dtype: torch.dtype
    quantised: bool

    def plan(self, batch: ForwardBatch, rows: Int64 | None = None) -> Plan:
        """Prepare attention of some rows of a batch (all of them where None)."""
        ...

    def norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Activation]:
        """Add, then RMS norm.

        Args:
            residual: (n, hidden); may be overwritten.
            delta: (n, hidden) to add first, or None.
            weight: (hidden,).

        Returns:
            the sum, (n, hidden), and its norm, ready for `linear`.
        """
        ...

    def linear(self, x: Activation, weight: Weight) -> Tensor:
        """x @ weight.T: (n, in) by (out, in) gives (n, out)."""
        ...

    def project(
        self, x: Activation, weight: Weight, residual: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """A product that belongs to the residual stream.

        Args:
            x, weight: as for `linear`.
            residual: (n, out); may be overwritten.

        Returns:
            what `norm` and `logits` add up: the residual and the product, or their sum, rounded
            after each, and None.
        """
        ...

    def qkv(
        self,
        x: Activation,
        weight: Weight,
        norms: tuple[Tensor, Tensor] | None,
        plan: Plan,
        kv: KvLayer | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: product, QK norm, RoPE; what is kept goes into the KV cache.

        Args:
            x: (n, in), all rows of the batch.
            weight: ((heads + 2 * kv_heads) * d_head, in), queries above keys above values.
            norms: two (d_head,) weights for queries and keys, or None.
            kv: the layer's KV cache, None where the batch neither reads nor keeps.

        Returns:
            (q, heads, d_head), the rows of the plan, and two (n, kv_heads, d_head).
        """
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, kv: KvLayer | None) -> Activation:
        """Attention over the tree.

        Each query attends to its ancestors and itself, in the KV cache and in the batch.

        Args:
            q, k, v: as `qkv` gives them.
            kv: the layer's KV cache, None where the batch neither reads nor keeps.

        Returns:
            (q, heads * d_head), ready for `linear`.
        """
        ...

    def silu_and_mul(self, x: Activation, weight: Weight) -> Activation:
        """silu(gate) * up, where x @ weight.T is gate beside up.

        Args:
            x: (n, in).
            weight: (2 * ffn, in), gate above up.

        Returns:
            (n, ffn), ready for `linear`.
        """
        ...

    def logits(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, head: Tensor
    ) -> Tensor:
        """Final norm and output head.

        Args:
            residual, delta, weight: as for `norm`.
            head: (rows, hidden), the rows of the output head that are wanted.

        Returns:
            (n, rows) float32.
        """
        ...
