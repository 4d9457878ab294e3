"""How the FP8 products are chosen: by multiplying, the slower ones only with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Activation, KvLayer, Weight
from covey.kernels.reference import ReferenceKernels

pytest.importorskip("triton", reason="Triton has no build for this platform")

from covey.kernels.hopper import cuda, linear
from covey.kernels.hopper.kernels import HopperKernels
from covey.kernels.hopper.linear import LinearBackend
from covey.kernels.hopper.rotary import QkvEpilogue
from kernels import interpreted
from kernels.forests import forest


def multiply(x: Activation, weight: Weight) -> Tensor:
    return interpreted.widened(x, weight).to(torch.bfloat16)


def added(x: Activation, weight: Weight, residual: Tensor) -> Tensor:
    return residual.add_(multiply(x, weight))


def gated(x: Activation, weight: Weight) -> Activation:
    gate, up = interpreted.widened(x, weight).chunk(2, 1)
    groups = (gate * gate.sigmoid() * up).view(len(gate), -1, 128)
    scales = groups.abs().amax(2) / 448
    return Activation((groups / scales[:, :, None]).to(torch.float8_e4m3fn).flatten(1), scales)


def heads(x: Activation, weight: Weight, form: QkvEpilogue) -> Tensor:
    """By the definition, in float32, rounded at the end."""
    split = interpreted.widened(x, weight).view(len(x.values), -1, 128)
    bounds = [form.queries, form.queries + form.keys]
    parts = list(split.tensor_split(bounds, 1))
    angles = torch.outer(form.rotary.positions.float(), form.rotary.frequencies)[:, None]
    for number in range(2):
        part = parts[number]
        if form.norms is not None:
            inverse = (part.square().mean(-1, keepdim=True) + form.epsilon).rsqrt()
            part = part * inverse * form.norms[number].float()
        cos, sin = angles.cos(), angles.sin()
        first, second = part.chunk(2, -1)
        parts[number] = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    _, k, v = (part.to(torch.bfloat16) for part in parts)
    if form.kv is not None and form.rotary.slots is not None:
        kept = form.rotary.slots >= 0
        where = form.rotary.slots[kept].long()
        form.kv.k[where], form.kv.v[where] = k[kept], v[kept]
    return torch.cat(parts, 1).to(torch.bfloat16).flatten(1)


def keeping_nothing(x: Activation, weight: Weight, form: QkvEpilogue) -> Tensor:
    return heads(x, weight, replace(form, kv=None))


def times(x: Activation, factor: float) -> Activation:
    assert x.scales is not None
    return Activation(x.values, x.scales * factor)


RIGHT = LinearBackend(multiply, gated, added, heads)
WRONG = {
    "product": replace(RIGHT, multiply=lambda x, w: multiply(x, w) * 1.01),
    "sum": replace(RIGHT, add=lambda x, w, residual: added(x, w, residual) * 1.01),
    "heads": replace(RIGHT, qkv=lambda x, w, form: heads(x, w, replace(form, norms=None))),
    "kv_cache": replace(RIGHT, qkv=keeping_nothing),
    "scales": replace(RIGHT, silu_and_mul=lambda x, w: times(gated(x, w), 1.01)),
    "unwritten": replace(RIGHT, multiply=lambda x, w: multiply(x, w) * float("nan")),
    "values": replace(
        RIGHT,
        silu_and_mul=lambda x, w: replace(gated(x, w), values=gated(x, w).values.roll(1, 0)),
    ),
}


def broken(_: torch.device) -> LinearBackend:
    raise ImportError("no module named cuda\nmore lines")


def test_the_fastest_right_products_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "covey_backend", lambda _: RIGHT)
    products, sentence = linear.choose_backend(interpreted.CPU)
    assert products is RIGHT and sentence == "FP8 products run on Covey's kernel."


@pytest.mark.parametrize("what", WRONG)
def test_products_that_are_wrong_anywhere_are_not_taken(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "covey_backend", lambda _: WRONG[what])
    monkeypatch.setattr(linear, "torch_backend", lambda _: RIGHT)
    products, sentence = linear.choose_backend(interpreted.CPU)
    assert products is RIGHT
    assert "run on torch.scaled_mm because Covey's kernel is wrong by" in sentence


def test_slower_products_say_what_was_wrong_with_the_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "covey_backend", broken)
    monkeypatch.setattr(linear, "torch_backend", lambda _: RIGHT)
    products, sentence = linear.choose_backend(interpreted.CPU)
    assert products is RIGHT
    assert "ImportError: no module named cuda" in sentence and "more lines" not in sentence


def test_no_right_products_are_an_error_with_both_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "covey_backend", broken)
    monkeypatch.setattr(linear, "torch_backend", lambda _: WRONG["product"])
    with pytest.raises(ModelError, match=r"no module named cuda.*scaled_mm is wrong by 1\.0e-02"):
        linear.choose_backend(interpreted.CPU)


def test_a_gated_product_of_two_steps_is_the_gate_of_the_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "scaled_mm", lambda x, w: interpreted.widened(x, w))
    torch.manual_seed(0)
    x = Activation(torch.randn(5, 256), torch.rand(5, 2) + 0.5)
    weight = Weight(torch.randn(512, 256), (torch.rand(4, 2) + 0.5) * 0.05)
    found = linear.torch_backend(interpreted.CPU).silu_and_mul(x, weight)
    gate, up = interpreted.widened(x, weight).chunk(2, 1)
    assert found.scales is not None
    wide = found.values * found.scales.repeat_interleave(128, 1)
    torch.testing.assert_close(wide, gate * gate.sigmoid() * up, rtol=1e-5, atol=1e-5)


def operands() -> tuple[Activation, Weight, Tensor]:
    torch.manual_seed(1)
    x = Activation(torch.randn(5, 256), torch.rand(5, 2) + 0.5)
    weight = Weight(torch.randn(512, 256), (torch.rand(4, 2) + 0.5) * 0.05)
    return x, weight, torch.randn(5, 512).to(torch.bfloat16)


def kernels(products: LinearBackend) -> HopperKernels:
    shape = interpreted.attention_config(2, 1, 128)
    return HopperKernels(shape, interpreted.CPU, torch.bfloat16, True, products, interpreted.dense)


def test_a_product_of_the_residual_stream_is_added_where_it_lies() -> None:
    x, weight, residual = operands()
    expected = residual + multiply(x, weight)
    total, rest = kernels(RIGHT).project(x, weight, residual)
    assert rest is None and total is residual and torch.equal(total, expected)


def test_products_that_cannot_add_leave_that_to_the_norm() -> None:
    x, weight, residual = operands()
    before = residual.clone()
    total, rest = kernels(replace(RIGHT, add=None)).project(x, weight, residual)
    assert total is residual and torch.equal(residual, before)
    assert rest is not None and torch.equal(rest, multiply(x, weight))


@pytest.mark.parametrize("asking", [None, [0, 3, 4]])
def test_heads_within_the_product_are_those_turned_behind_it(asking: list[int] | None) -> None:
    x, weight, _ = operands()
    batch = replace(
        forest([-1, 0, 1, -1, 3], []), slot_mapping=np.array([-1, 4, 0, -1, -1], dtype=np.int32)
    )
    rows = None if asking is None else np.array(asking)
    norms = torch.rand(128).to(torch.bfloat16), torch.rand(128).to(torch.bfloat16)
    found = []
    for products in (RIGHT, replace(RIGHT, qkv=None)):
        ours = kernels(products)
        kv_cache = KvLayer(*torch.full((2, 6, 1, 128), 7.0, dtype=torch.bfloat16))
        outs = ours.qkv(x, weight, norms, ours.plan(batch, rows), kv_cache)
        found.append([*outs, kv_cache.k, kv_cache.v])
    for within, behind in zip(*found, strict=True):
        torch.testing.assert_close(within, behind, atol=0.02, rtol=0.02)
    kept = found[0][3]
    assert bool((kept[[1, 2, 3, 5]] == 7).all()) and torch.equal(kept[[4, 0]], found[0][1][1:3])


def test_weights_without_scales_reach_no_fp8_product() -> None:
    refused = LinearBackend(_refuse, _refuse, _refuse)
    shape = interpreted.attention_config(2, 1, 128)
    ours = HopperKernels(shape, interpreted.CPU, torch.float32, False, refused, interpreted.dense)
    plain = ReferenceKernels(shape, interpreted.CPU, torch.float32)
    torch.manual_seed(2)
    x, weight = Activation(torch.randn(3, 64)), Weight(torch.randn(256, 64))
    torch.testing.assert_close(ours.linear(x, weight), x.values @ weight.values.T)
    torch.testing.assert_close(
        ours.silu_and_mul(x, weight).values, plain.silu_and_mul(x, weight).values
    )
    residual = torch.randn(3, 256)
    for kernels_of in (ours, plain):
        total, rest = kernels_of.project(x, weight, residual)
        assert total is residual and rest is not None
        torch.testing.assert_close(rest, x.values @ weight.values.T)


def _refuse(*_: object) -> NoReturn:
    raise AssertionError("an FP8 product was called")


class Compiler:
    """Counts compilations and gives bytes that depend on what is compiled."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, name: str, files: dict[str, bytes], options: list[str]) -> bytes:
        self.calls += 1
        return f"{name} {sorted(files)} {options}".encode()


def test_code_is_compiled_once_for_a_source_and_its_constants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Compiler()
    monkeypatch.setattr(cuda, "_compile", fake)
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path))
    first = cuda.machine_code("fp8_gemm.cu", ("sm90.cuh",), {"A": 1})
    assert cuda.machine_code("fp8_gemm.cu", ("sm90.cuh",), {"A": 1}) == first
    assert fake.calls == 1 and b"sm90.cuh" in first and b"-DA=1" in first
    assert cuda.machine_code("fp8_gemm.cu", ("sm90.cuh",), {"A": 2}) != first
    assert fake.calls == 2
    assert sorted(path.suffix for path in (tmp_path / "kernels").iterdir()) == [".cubin"] * 2


def test_code_that_cannot_be_kept_is_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Compiler()
    monkeypatch.setattr(cuda, "_compile", fake)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        cuda.machine_code("fp8_gemm.cu", ("sm90.cuh",), {})
    assert fake.calls == 2
