"""Errors and sustained times of the FP8 products, beside DeepGEMM and torch.

    python bench/hopper_products.py [--only errors|times] [--rows 16384,32768,65536]

Needs an H100 or H200 and covey[gpu]; DeepGEMM takes part where it is installed
(sgl-deep-gemm, apache-tvm-ffi, and CUDA_HOME with nvcc). Shapes are those of Qwen3 4B.
Errors are relative to float64 on fresh random inputs, outputs made in memory that held
NaN. Equal bytes: of a gated product, beside float64 rounded to FP8.
"""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covey.kernels.base import Activation, Weight
from covey.kernels.hopper import linear
from covey.kernels.hopper.launch import gemm_layout, relative_error
from covey.kernels.hopper.linear import LinearBackend, QkvProduct
from covey.kernels.hopper.rotary import QkvEpilogue, rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from gpu_timing import poison, sustained, versions
from hopper_cases import (
    CUDA,
    EPSILON,
    FFN,
    FP8,
    HEADS,
    HIDDEN,
    KV_HEADS,
    QKV,
    WEIGHTS,
    D,
    batch_of,
    exact,
    heads_of,
    kernels,
    normal,
    random_product,
)

ROWS = (1, 63, 128, 129, 1021, 4100, 32768)
ODD = ("three strips", 384, 512)  # columns that no pair of strips divides


def deep_gemm() -> LinearBackend:
    """DeepGEMM, which compiles a kernel for every shape at its first use, and the gate."""
    import deep_gemm as library

    def multiply(x: Activation, weight: Weight) -> Tensor:
        values, scales = gemm_layout(x)
        out = torch.empty(len(values), len(weight.values), device=CUDA, dtype=torch.bfloat16)
        left, right = (values, scales), (weight.values, weight.scales)
        library.fp8_gemm_nt(left, right, out, disable_ue8m0_cast=True)
        return out[: len(x.values)]

    def gated(x: Activation, weight: Weight) -> Activation:
        return silu_and_mul(multiply(x, weight), out_dtype=FP8, quantised=True)

    return LinearBackend(multiply, gated)


def peers() -> dict[str, LinearBackend]:
    """All products that can run here, by name."""
    found = {"Covey": linear.covey_backend(CUDA), "torch": linear.torch_backend(CUDA)}
    if importlib.util.find_spec("deep_gemm") is not None:
        found["DeepGEMM"] = deep_gemm()
    return found


def print_errors(products: dict[str, LinearBackend]) -> bool:
    """Print the errors of all products; whether each is under its limit."""
    good = True
    for rows in ROWS:
        for label, out, width in (*WEIGHTS, ODD):
            x, weight = random_product(rows, out, width)
            expected = exact(x, weight)
            for name, product in products.items():
                poison()
                found = relative_error(product.multiply(x, weight), expected)
                good &= found < 5e-3
                print(f"  {name:<10}{label:<14}{rows:>7} rows{found:11.2e}", flush=True)
                if product.added is None:
                    continue
                residual = normal(rows, out)
                total = expected + residual.double()
                found = relative_error(product.added(x, weight, residual), total)
                good &= found < 5e-3
                print(f"  {name:<10}{label + ', added':<14}{rows:>7} rows{found:11.2e}", flush=True)
        good &= print_gated_errors(products, rows)
    return good


def print_gated_errors(products: dict[str, LinearBackend], rows: int) -> bool:
    """The same of the gated product: of its values, of its scales, and equal bytes."""
    x, weight = random_product(rows, 2 * FFN, HIDDEN)
    first, second = exact(x, weight).chunk(2, 1)
    expected = first * first.sigmoid() * second
    scales = expected.view(rows, -1, 128).abs().amax(2) / 448
    rounded = (expected.view(rows, -1, 128) / scales[:, :, None]).float().to(FP8).view(rows, -1)
    good = True
    for name, product in products.items():
        poison()
        found = product.silu_and_mul(x, weight)
        assert found.scales is not None
        wide = found.values.double() * found.scales.double().repeat_interleave(128, 1)
        values, factors = relative_error(wide, expected), relative_error(found.scales, scales)
        same = (found.values.view(torch.uint8) == rounded.view(torch.uint8)).double().mean()
        good &= values < 4e-2 and factors < 5e-3
        print(
            f"  {name:<10}{'gated':<14}{rows:>7} rows{values:11.2e}"
            f"  scales {factors:.1e}, equal bytes {float(same):.1%}",
            flush=True,
        )
    return good


def print_times(products: dict[str, LinearBackend], rows: int, seconds: float) -> None:
    """Print microseconds, of a layer and of 36 layers a token, and TFLOPS."""
    print(f"{rows:,} rows{'':<28}us/layer  us/token x 36   TFLOPS")
    totals = dict.fromkeys(products, 0.0)
    for label, out, width in WEIGHTS:
        x, weight = random_product(rows, out, width)
        for name, product in products.items():
            whole = label == "gate_up"
            used = sustained(
                _call(product.gated if whole else product.multiply, x, weight), seconds
            )
            totals[name] += used
            text = "gate_up, gated" if whole else label
            rate = 2 * rows * out * width / used / 1e12
            print(
                f"  {name:<10}{text:<20}{used * 1e6:12.1f}{used / rows * 36e6:13.3f}{rate:12.0f}",
                flush=True,
            )
    for name, total in totals.items():
        print(f"  {name:<10}{'all':<20}{total * 1e6:12.1f}{total / rows * 36e6:13.3f}", flush=True)


def print_head_times(products: dict[str, LinearBackend], rows: int, seconds: float) -> None:
    """Print queries, keys and values, normed and turned within the product or behind it."""
    x, weight = random_product(rows, QKV, HIDDEN)
    turn = kernels().plan(batch_of([(rows, -1, 0)])).rotary
    norms = normal(D), normal(D)
    form = QkvEpilogue(HEADS, KV_HEADS, norms, turn, None, EPSILON)
    for name, product in products.items():
        ways: dict[str, Callable[[], object]] = {}
        if product.heads is not None:
            ways["within"] = _by_heads(product.heads, x, weight, form)

        def behind(multiply: Callable[[Activation, Weight], Tensor] = product.multiply) -> None:
            q, k, v = heads_of(multiply(x, weight))
            rotate_and_store(q, k, v, norms, None, turn, None, EPSILON)

        ways["behind"] = behind
        for way, work in ways.items():
            used = sustained(work, seconds)
            text = f"qkv, turned {way}"
            print(f"  {name:<10}{text:<20}{used * 1e6:12.1f}{used / rows * 36e6:13.3f}", flush=True)


def _by_heads(
    product: QkvProduct, x: Activation, weight: Weight, form: QkvEpilogue
) -> Callable[[], object]:
    return lambda: product(x, weight, form)


def _call(
    product: Callable[[Activation, Weight], object], x: Activation, weight: Weight
) -> Callable[[], object]:
    return lambda: product(x, weight)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and time; the exit status is 1 where an error is too large."""
    parser = argparse.ArgumentParser(description="Check and time the FP8 products.")
    parser.add_argument("--only", choices=("errors", "times"))
    parser.add_argument("--rows", default="16384,32768,65536")
    parser.add_argument("--seconds", type=float, default=0.8)
    options = parser.parse_args(arguments)
    print(versions())
    torch.manual_seed(secrets.randbelow(2**31))
    products = peers()
    good = True
    if options.only != "times":
        good = print_errors(products)
    if options.only != "errors":
        for rows in options.rows.split(","):
            print_times(products, int(rows), options.seconds)
            print_head_times(products, int(rows), options.seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
