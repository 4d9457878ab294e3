"""Errors and sustained times of the Hopper kernels, one by one.

    python bench/hopper kernels [--part elementwise|attention|fp8-attention|products]
                                [--only errors|times] [--rows 16384,32768]

Shapes are those of Qwen3 4B. Errors are relative, ||found - expected|| / ||expected||, against
float64 on fresh random inputs, with NaN in the memory that outputs are made of. Times are a
layer's work for a batch of so many rows, sustained, beside the bytes or operations that it cannot
avoid. DeepGEMM takes part in the products where it is installed (sgl-deep-gemm, apache-tvm-ffi,
and CUDA_HOME with nvcc).
"""

from __future__ import annotations

import argparse
import importlib.util
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import Activation, ForwardBatch, KvLayer, Weight
from covey.kernels.fp8_format import FP8_GROUP, FP8_MAX
from covey.kernels.hopper import linear
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.flash_attention import DenseAttention
from covey.kernels.hopper.flash_attention_fp8 import fp8_attention
from covey.kernels.hopper.launch import gemm_layout, relative_error
from covey.kernels.hopper.linear import LinearBackend
from covey.kernels.hopper.logits import answer_logits
from covey.kernels.hopper.packed_attention import Build, packed_attention
from covey.kernels.hopper.rms_norm import add_rms_norm
from covey.kernels.hopper.rotary import QkvEpilogue, RotaryEmbedding, rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from hopper import exact
from hopper.harness import DEVICE, Results, poison, sustained
from hopper.inputs import (
    BF16,
    EPSILON,
    FFN,
    FP8,
    HEADS,
    HIDDEN,
    KV_HEADS,
    NEVER,
    QKV,
    WEIGHTS,
    D,
    batch_of,
    dense_parts,
    empty_cache,
    flash_attention,
    heads_of,
    keeping,
    normal,
    plan_of,
    random_cache,
    random_product,
    suffixes,
)

_ROWS = 1021  # of most errors: odd
_FIRST_SLOT = (1 << 21) + 100  # where keys are kept: offsets beyond 31 bits
_PRODUCT_ROWS = (1, 63, 128, 129, 1021, 4100, 32768)
_ODD = {"three strips": (384, 512)}  # columns that no pair of strips divides
_LIMITS = {BF16: 6e-3, FP8: 4e-2}  # of errors, by what is put out
_FP8_ATTENTION_LIMIT = 1e-1
_OTHER_BYTES = 0.05  # of a gated product: 1.2% were found
PARTS = ("elementwise", "attention", "fp8-attention", "products")


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel on some inputs.

    Attributes:
        run: the kernel; it may write where it reads.
        exact: what it will give, of what the inputs are now; None where it is timed only.
        limit: of its error.
        amount: bytes or operations that it cannot avoid; None where it is not timed.
    """

    label: str
    run: Callable[[], Tensor | Activation | None]
    exact: Callable[[], Tensor] | None = None
    limit: float = _LIMITS[BF16]
    amount: float | None = None


def check(cases: Iterator[Case], results: Results) -> None:
    """Keep the error of each case."""
    for case in cases:
        if case.exact is not None:
            expected = case.exact()
            poison()
            error = relative_error(exact.widened(case.run()), expected)
            results.error(case.label, error, case.limit)


def clock(cases: Iterator[Case], rows: int, results: Results) -> None:
    """Keep the time of each case."""
    for case in cases:
        if case.amount is not None:
            results.time(case.label, sustained(case.run), rows, case.amount)


def elementwise(rows: int) -> Iterator[Case]:
    """Norm, silu_and_mul, logits and rotation."""
    residual, delta, weight = normal(rows, HIDDEN), normal(rows, HIDDEN) * 1e-3, normal(HIDDEN)
    both, head, qkv = normal(rows, 2 * FFN), normal(8, HIDDEN), normal(rows, QKV)

    def normed() -> Tensor:
        return exact.norm(residual + delta, weight)

    for name, dtype in (("FP8", FP8), ("BF16", BF16)):
        out = {"out_dtype": dtype, "quantised": dtype is FP8}
        size, limit = dtype.itemsize, _LIMITS[dtype]
        norm = partial(add_rms_norm, residual, delta, weight, epsilon=EPSILON, **out)
        yield Case(f"norm, {name} (one of two)", norm, normed, limit, rows * HIDDEN * (6 + size))
        gate = partial(silu_and_mul, both, **out)
        expected = partial(exact.silu_and_mul, both)
        yield Case(f"silu_and_mul, {name}", gate, expected, limit, rows * FFN * (4 + size))
    total = lambda: (residual + delta).double()  # noqa: E731
    yield Case("the residual behind the norm", lambda: (norm(), residual)[1], total)
    logits = partial(answer_logits, residual, delta, weight, head, EPSILON)
    yield Case("answer logits", logits, lambda: normed() @ head.double().T)
    yield from rotation("rotate", lambda: qkv, qkv.double)


def rotation(
    label: str,
    product: Callable[[], Tensor],
    exact_product: Callable[[], Tensor],
    within: Callable[[QkvEpilogue], Tensor] | None = None,
) -> Iterator[Case]:
    """Heads normed and rotated, keeping all of them and none.

    Args:
        product: what gives them where rotation follows.
        exact_product: the same in float64.
        within: the product with an epilogue, instead.
    """
    rows, norms = len(product()), (normal(D), normal(D))
    slots = np.random.default_rng(1).permutation(rows) + _FIRST_SLOT
    batch, where = batch_of([(rows, -1, 3000)]), torch.from_numpy(slots).to(DEVICE)
    kv = empty_cache(int(slots.max()) + 1)

    def run(rotary: RotaryEmbedding, kv: KvLayer | None) -> Tensor:
        if within is not None:
            return within(QkvEpilogue(HEADS, KV_HEADS, norms, rotary, kv, EPSILON))
        found = product()
        rotate_and_store(*heads_of(found), norms, None, rotary, kv, EPSILON)
        return found

    def kept() -> Tensor:
        found = keep()
        others = int((~kv.k[:, 0, 0].isnan()).sum()) - rows
        stored = torch.cat([kv.k[where], kv.v[where]], 1).flatten(1)
        return torch.cat([found, stored if not others else stored * float("nan")], 1)

    def expected() -> Tensor:
        found = exact.rotation(exact_product(), batch.positions, norms)
        return torch.cat([found, found[:, HEADS * D :]], 1)

    keep = partial(run, plan_of(keeping(batch, slots)).rotary, kv)
    moved = rows * (HEADS + KV_HEADS) * D * 4
    yield Case(f"{label}, and what is kept", kept, expected)
    yield Case(f"{label}, keeping all", keep, amount=moved + rows * KV_HEADS * D * 6)
    yield Case(label, partial(run, plan_of(batch).rotary, None), amount=moved)


BATCHES = {
    "suffixes of 5 behind 700 slots": suffixes(1000, 5, 700, slot=900),
    "suffixes of 7 behind 40 slots": suffixes(980, 7, 40, slot=11),
    "two anchors, out of order, with a gap": batch_of(
        [(10, -1, 600)] * 20 + [(31, -1, 0)] + [(9, -1, 300)] * 30,
        [(0, 200, 1500, 2100), (231, 501, 100, 400)],
    ),
    "prompts of 300 with a common opening": batch_of([(300, -1, 0)] + [(280, 19, 20)] * 3),
    "a prompt of 1,100": batch_of([(1100, -1, 0)]),
    "a document of 700 with partners of 6": batch_of([(706, -1, 0)] + [(6, 699, 700)] * 60),
}
LONG_BATCHES = {
    "suffixes of 5 behind 4,096 slots": suffixes(4000, 5, 4096, slot=90),
    "two anchors, with a gap": batch_of(
        [(10, -1, 2000)] * 80 + [(31, -1, 0)] + [(9, -1, 1500)] * 90,
        [(0, 800, 2500, 4500), (831, 1641, 100, 1600)],
    ),
    "a prompt of 4,200": batch_of([(4200, -1, 0)]),
}


def attention(
    batches: dict[str, ForwardBatch],
    ways: Sequence[DenseLimits],
    dense: DenseAttention = flash_attention,
) -> Iterator[Case]:
    """Batches of every kind, with dense calls where they are due and without; none is timed."""
    for label, batch in batches.items():
        q, k, v = heads_of(normal(len(batch), QKV))
        kv = random_cache(4600)
        expected = partial(exact.attention, q, k, v, batch, kv)
        for limits in ways:
            plan = plan_of(batch, limits)
            poison()
            parts = dense_parts(q, k, v, kv, plan.calls, dense)
            for name, dtype in (("FP8", FP8), ("BF16", BF16)):
                text = f"{label} ({len(parts)} dense, {name})"
                work = partial(
                    packed_attention, q, k, v, kv, plan.tiles, parts, scale=D**-0.5,
                    quantised=dtype is FP8, out_dtype=dtype,
                )  # fmt: skip
                limit = _LIMITS[dtype] if dense is flash_attention else _FP8_ATTENTION_LIMIT
                yield Case(text, work, expected, limit)


BUILDS = {
    f"{keys} keys, {stages} stages, {registers} registers": Build(keys, 4, stages, registers)
    for keys, stages, registers in ((16, 2, 128), (32, 2, 128), (32, 2, 255), (32, 3, 160))
}


def attention_times(rows: int, results: Results) -> None:
    """Time the packed kernel in several builds, and dense calls beside it."""
    cases = {
        f"{n} tokens behind {a}": suffixes(rows, n, a)
        for n, a in ((5, 4096), (15, 1024), (15, 256), (5, 0), (15, 48))
    }
    cases |= {f"{n} tokens": suffixes(rows, n, 0) for n in (300, 600)}
    common = [(300, -1, 0)] + [(280, 19, 20)] * (rows // 280 - 1)
    cases["300 tokens, 20 of them common"] = batch_of(common)
    kv = random_cache(40_000)
    for label, batch in cases.items():
        q, k, v = heads_of(normal(len(batch), QKV))
        for way, limits in (("dense", DenseLimits(causal_rows=256)), ("packed", NEVER)):
            plan = plan_of(batch, limits)
            if (way == "packed" and label.endswith("4096")) or (way == "dense" and not plan.calls):
                continue
            dense = partial(dense_parts, q, k, v, kv, plan.calls)
            parts = dense()
            if parts:
                results.time(f"{label}, {way}", sustained(dense, 0.4), len(batch))
            for name, build in BUILDS.items():
                work = partial(
                    packed_attention, q, k, v, kv, plan.tiles, parts, scale=D**-0.5,
                    out_dtype=FP8, quantised=True, build=build,
                )  # fmt: skip
                results.time(f"{label}, {way}: {name}", sustained(work, 0.2), len(batch))


def fp8_attention_times(rows: int, results: Results) -> None:
    """Time dense attention in BF16 and in FP8, rounding included."""
    cases = {
        f"{length} tokens behind {anchor:,}": suffixes(rows, length, anchor)
        for length, anchor in ((15, 512), (15, 1024), (5, 4096), (5, 8192))
    }
    cases |= {f"runs of {n:,}": batch_of([(n, -1, 0)] * max(rows // 2 // n, 1))
              for n in (2048, 4096, 8192)}  # fmt: skip
    kv = random_cache(9000)
    for label, batch in cases.items():
        qkv = heads_of(normal(len(batch), QKV))
        calls = plan_of(batch).calls[:1]
        for name, run in (("BF16", flash_attention), ("FP8", fp8_attention)):
            used = sustained(partial(dense_parts, *qkv, kv, calls, run), 0.3)
            results.time(f"{label}, {name}", used, len(batch))


def backends() -> dict[str, LinearBackend]:
    """All that multiply in FP8 here, by name."""
    found = {"Covey": linear.covey_backend(DEVICE), "torch": linear.torch_backend(DEVICE)}
    if importlib.util.find_spec("deep_gemm") is not None:
        found["DeepGEMM"] = deep_gemm()
    return found


def deep_gemm() -> LinearBackend:
    """DeepGEMM, which compiles a kernel for every shape at its first use, and silu_and_mul."""
    import deep_gemm as library

    def multiply(x: Activation, weight: Weight) -> Tensor:
        values, scales = gemm_layout(x)
        out = torch.empty(len(values), len(weight.values), device=DEVICE, dtype=BF16)
        left, right = (values, scales), (weight.values, weight.scales)
        library.fp8_gemm_nt(left, right, out, disable_ue8m0_cast=True)
        return out[: len(x.values)]

    def two_steps(x: Activation, weight: Weight) -> Activation:
        return silu_and_mul(multiply(x, weight), out_dtype=FP8, quantised=True)

    return LinearBackend(multiply, two_steps)


def products(found: dict[str, LinearBackend], rows: int) -> Iterator[Case]:
    """A layer's four products, alone and with what follows them."""
    for label, (out, width) in (WEIGHTS | _ODD).items():
        x, weight = random_product(rows, out, width)
        residual = normal(rows, out)
        expected = partial(exact.product, x, weight)
        amount = 2 * rows * out * width
        for name, backend in found.items():
            text = f"{name}, {rows:,} rows, {label}"
            multiply = partial(backend.multiply, x, weight)
            yield Case(text, multiply, expected, amount=None if label in _ODD else amount)
            if backend.add is not None:
                add = partial(backend.add, x, weight, residual)
                yield Case(f"{text}, added", add, lambda: residual.double() + expected())  # noqa: B023
            if label == "gate_up":
                yield from gated(
                    f"{text}, silu_and_mul",
                    partial(backend.silu_and_mul, x, weight),
                    expected,
                    amount,
                )
            if label == "qkv":
                if backend.qkv is not None:
                    within = partial(backend.qkv, x, weight)
                    yield from rotation(f"{text}, rotated within", multiply, expected, within)
                yield from rotation(f"{text}, rotated behind", multiply, expected)


def gated(
    label: str, run: Callable[[], Activation], product: Callable[[], Tensor], amount: float
) -> Iterator[Case]:
    """silu_and_mul behind its product: values, scales, and bytes that float64 rounded has not."""

    def scaled() -> tuple[Tensor, Tensor]:
        groups = exact.silu_and_mul(product()).unflatten(1, (-1, FP8_GROUP))
        return groups, groups.abs().amax(2) / FP8_MAX

    def other_bytes() -> Tensor:
        groups, scales = scaled()
        rounded = (groups / scales[:, :, None]).float().to(FP8).flatten(1)
        other = run().values.view(torch.uint8) != rounded.view(torch.uint8)
        return 1 + other.double().mean()

    yield Case(label, run, lambda: scaled()[0].flatten(1), _LIMITS[FP8], amount)
    yield Case(f"{label}: scales", lambda: run().scales, lambda: scaled()[1])
    yield Case(f"{label}: other bytes", other_bytes, lambda: torch.ones(()), _OTHER_BYTES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--only", choices=("errors", "times"))
    parser.add_argument("--rows", default="16384", help="of the times, several by commas")


def run(options: argparse.Namespace, results: Results) -> None:
    """Check and time."""
    torch.manual_seed(secrets.randbelow(2**31))
    parts = [options.part] if options.part else list(PARTS)
    found = backends() if "products" in parts else {}
    errors: dict[str, Callable[[], list[Iterator[Case]]]] = {
        "elementwise": lambda: [elementwise(_ROWS)],
        "attention": lambda: [attention(BATCHES, (DenseLimits(), NEVER))],
        "fp8-attention": lambda: [attention(LONG_BATCHES, (DenseLimits(),), fp8_attention)],
        "products": lambda: [products(found, rows) for rows in _PRODUCT_ROWS],
    }
    for part in parts if options.only != "times" else ():
        print(f"{part}: errors")
        for cases in errors[part]():
            check(cases, results)
    for part in parts if options.only != "errors" else ():
        for rows in map(int, options.rows.split(",")):
            label = f"{part}, {rows:,} rows"
            print(f"{label:<68}    us/layer us/token x 36        T/s")
            if part == "elementwise":
                clock(elementwise(rows), rows, results)
            elif part == "products":
                clock(products(found, rows), rows, results)
            elif part == "attention":
                attention_times(rows, results)
            else:
                fp8_attention_times(rows, results)
