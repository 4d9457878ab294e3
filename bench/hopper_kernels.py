"""Errors and sustained times of the Hopper kernels, one by one.

    python bench/hopper_kernels.py [--only errors|times] [--tokens 16384]

Needs an H100 or H200 and covey[gpu]. Shapes are those of Qwen3 4B. Errors are relative,
||found - expected|| / ||expected||, against float64 on fresh random inputs, with NaN in
the memory that outputs are made of. Times are a layer's work for a batch of tokens,
sustained, beside the bytes it cannot avoid.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import ForwardBatch, KvLayer
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.kernels import HopperPlan
from covey.kernels.hopper.packed_attention import Build, packed_attention
from covey.kernels.hopper.rms_norm import add_rms_norm
from covey.kernels.hopper.rotary import rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from gpu_timing import sustained, versions
from hopper_cases import (
    EPSILON,
    FFN,
    FP8,
    HEADS,
    HIDDEN,
    KV_HEADS,
    NEVER,
    QKV,
    D,
    batch_of,
    flash_attention,
    heads_of,
    kernels,
    normal,
    suffixes,
)
from hopper_errors import print_errors


def print_times(tokens: int) -> None:
    """Print the times of the glue for a batch of `tokens`."""
    print(f"{tokens:,} tokens, one layer{'':<34}us/layer  us/token x 36   TB/s or TFLOPS")
    residual, delta = normal(tokens, HIDDEN), normal(tokens, HIDDEN) * 1e-3
    weight, both = normal(HIDDEN), normal(tokens, 2 * FFN)
    qkv, norms = normal(tokens, QKV), (normal(D), normal(D))
    plan = kernels().plan(batch_of([(tokens, -1, 0)]))
    keep = _keeping(tokens)
    kv_cache = KvLayer(normal(tokens, KV_HEADS, D), normal(tokens, KV_HEADS, D))
    q, k, v = heads_of(qkv)

    def turn(used: HopperPlan, kv: KvLayer | None) -> Callable[[], object]:
        return lambda: rotate_and_store(q, k, v, norms, None, used.rotary, kv, EPSILON)

    row(
        "norm, FP8 (one of two)", tokens, tokens * HIDDEN * 7,
        lambda: add_rms_norm(
            residual, delta, weight, epsilon=EPSILON, out_dtype=FP8, quantised=True
        ),
    )  # fmt: skip
    moved = tokens * (HEADS + KV_HEADS) * D * 4
    row("rotate", tokens, moved, turn(plan, None))
    row("rotate and keep all", tokens, moved + tokens * KV_HEADS * D * 6, turn(keep, kv_cache))
    row(
        "gate, FP8", tokens, tokens * FFN * 5,
        lambda: silu_and_mul(both, out_dtype=FP8, quantised=True),
    )  # fmt: skip


def _keeping(tokens: int) -> HopperPlan:
    plain = batch_of([(tokens, -1, 0)])
    batch = ForwardBatch(
        plain.tokens, plain.positions, plain.subtree_ends, plain.logits_indices, plain.prefix_rows,
        plain.prefix_slots, np.arange(tokens, dtype=np.int32),
    )  # fmt: skip
    return kernels().plan(batch)


def row(
    label: str, tokens: int, amount: float, work: Callable[[], object], seconds: float = 0.6
) -> float:
    """Time and print one line; returns the seconds."""
    found = sustained(work, seconds)
    rate = amount / found / 1e12
    print(f"  {label:<52}{found * 1e6:14.1f}{found / tokens * 36e6:13.3f}{rate:14.2f}", flush=True)
    return found


def print_attention_times(tokens: int) -> None:
    """Print the packed kernel in several builds, and dense calls beside it."""
    print("attention, one layer: dense part, packed part by build")
    kv_cache = KvLayer(normal(40_000, KV_HEADS, D), normal(40_000, KV_HEADS, D))
    cases = {
        f"{n} tokens behind {a}": suffixes(tokens, n, a)
        for n, a in ((5, 4096), (15, 1024), (15, 256), (5, 0), (15, 48))
    }
    cases["300 tokens"] = suffixes(tokens, 300, 0)
    cases["600 tokens"] = suffixes(tokens, 600, 0)
    cases["300 tokens, 20 of them common"] = batch_of(
        [(300, -1, 0)] + [(280, 19, 20)] * (tokens // 280 - 1)
    )
    for label, batch in cases.items():
        qkv = normal(len(batch), QKV)
        for limits, causal in ((DenseLimits(causal_rows=256), "dense"), (NEVER, "packed")):
            if causal == "packed" and label.endswith("4096"):
                continue
            times = attention_times(qkv, batch, kv_cache, limits)
            if not times:
                continue
            print(f"  {label}, {causal} (us/token x 36)")
            for name, value in times.items():
                print(f"      {name:<50}{value * 36e6:8.3f}", flush=True)


BUILDS = {
    f"{keys} keys, {stages} stages, {registers} registers": Build(keys, 4, stages, registers)
    for keys, stages, registers in ((16, 2, 128), (32, 2, 128), (32, 2, 255), (32, 3, 160))
}


def attention_times(
    qkv: Tensor, batch: ForwardBatch, kv_cache: KvLayer, limits: DenseLimits
) -> dict[str, float]:
    """Seconds a token of the dense calls and of each build of the packed kernel."""
    q, k, v = heads_of(qkv)
    plan = kernels(limits).plan(batch)
    if not plan.calls and limits is not NEVER:
        return {}
    parts: list[tuple[Tensor, Tensor]] = []

    def dense() -> list[tuple[Tensor, Tensor]]:
        return [
            flash_attention(q, *((kv_cache.k, kv_cache.v) if c.prefix else (k, v)), c, D**-0.5)
            for c in plan.calls
        ]

    def packed(build: Build) -> Callable[[], object]:
        return lambda: packed_attention(
            q, k, v, kv_cache, plan.tiles, parts, scale=D**-0.5, out_dtype=FP8, quantised=True,
            build=build,
        )  # fmt: skip

    found = {}
    if plan.calls:
        parts = dense()
        found["dense"] = sustained(dense, 0.4) / len(batch)
    for name, build in BUILDS.items():
        found[name] = sustained(packed(build), 0.2) / len(batch)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and time; the exit status is 1 where an error is too large."""
    parser = argparse.ArgumentParser(description="Check and time the Hopper kernels.")
    parser.add_argument("--only", choices=("errors", "times"))
    parser.add_argument("--tokens", type=int, default=16384)
    options = parser.parse_args(arguments)
    print(versions())
    torch.manual_seed(secrets.randbelow(2**31))
    good = True
    if options.only != "times":
        good = print_errors()
    if options.only != "errors":
        print_times(options.tokens)
        print_attention_times(options.tokens)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
