"""FlashAttention-3 over contiguous keys that may lie anywhere in a KV cache.

Sequence b takes `query_counts[b]` rows from `query_starts[b]` on and `key_counts[b]` keys
from `key_starts[b]` on: the starts are what the library calls cumulative lengths, of
which it reads no more than the start where the lengths are given beside them. So nothing
is copied together, and the rows between sequences are left alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Int32
from covey.kernels.hopper.attention_split import DenseCall
from covey.kernels.hopper.launch import require


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """An `attention_split.DenseCall` on the device.

    Attributes:
        prefix: whether the keys lie in the KV cache.
        causal: lower-triangular.
        most_queries, most_keys: the largest counts.
        queries, keys: the sums of the counts.
        pairs: (query, key) pairs that are computed.
        query_starts, key_starts: (b + 1,) int32.
        query_counts, key_counts: (b,) int32.
        key_offsets: (b + 1,) int32, where keys begin that lie one behind the other.
    """

    prefix: bool
    causal: bool
    most_queries: int
    most_keys: int
    queries: int
    keys: int
    pairs: int
    query_starts: Tensor
    query_counts: Tensor
    key_starts: Tensor
    key_counts: Tensor
    key_offsets: Tensor


def call_arrays(call: DenseCall) -> list[Int32]:
    """What of a call the device reads, in the order of `DeviceCall`."""
    arrays = []
    for ranges in (call.queries, call.keys):
        starts = np.append(ranges[:, 0], ranges[-1, 1])
        arrays += [starts.astype(np.int32), (ranges[:, 1] - ranges[:, 0]).astype(np.int32)]
    return [*arrays, np.append(0, np.cumsum(arrays[3])).astype(np.int32)]


def device_call(call: DenseCall, arrays: Sequence[Tensor]) -> DeviceCall:
    """A call whose arrays have been uploaded."""
    queries, keys = (ranges[:, 1] - ranges[:, 0] for ranges in (call.queries, call.keys))
    pairs = int((queries * keys.astype(np.int64)).sum()) // (2 if call.causal else 1)
    most, sums = (int(queries.max()), int(keys.max())), (int(queries.sum()), int(keys.sum()))
    return DeviceCall(call.prefix, call.causal, *most, *sums, pairs, *arrays)


class DenseAttention(Protocol):
    """What computes the dense calls."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attention of each sequence of a call.

        Args:
            q: (q, heads, d); k, v: (keys, kv_heads, d), of the batch or of the KV cache.

        Returns:
            (q, heads, d) contiguous and (heads, q) float32 natural log-sum-exp; what lies
            between sequences is undefined.
        """
        ...


def load_flash_attention() -> DenseAttention:
    """Load the library, which registers its operations with torch."""
    importlib.import_module("fa3_fwd._C")
    return _flash_attention


def _flash_attention(
    q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float
) -> tuple[Tensor, Tensor]:
    """See `DenseAttention`; BF16 on sm_90.

    Raises:
        RunError: a dtype or stride that the library would copy or refuse.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        fits = x.dtype is torch.bfloat16 and x.stride(2) == 1
        require(fits, "dense attention", f"{name} is {x.dtype} with strides {x.stride()}")
    return run_flash_attention((q, k, v), call.key_starts, call, scale, (None, None, None))


def run_flash_attention(
    operands: tuple[Tensor, Tensor, Tensor],
    key_starts: Tensor,
    call: DeviceCall,
    scale: float,
    descales: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor]:
    """The library's own call.

    Args:
        operands: queries, keys and values, all BF16 or all e4m3.
        key_starts: of each sequence's keys, as `call` has the other ranges.
        descales: (b, kv_heads) float32 factors of e4m3 operands.

    Returns:
        see `DenseAttention`; the output is BF16.
    """
    out, lse, *_ = torch.ops.fa3_fwd.fwd(
        *operands, None, None, None, None,
        call.query_starts, key_starts, None, call.query_counts, call.key_counts,
        call.most_queries, call.most_keys,
        None, None, None, None, None, None, *descales,
        scale, call.causal, -1, -1, 0, 0.0, False, None, 1, None, 0,
    )  # fmt: skip
    return out, lse
