"""How the FP8 product is chosen: by multiplying, the slower one only with a reason."""

from __future__ import annotations

import pytest
import torch

from covey.errors import ModelError
from covey.kernels.base import Activation, Weight

pytest.importorskip("triton", reason="Triton has no build for this platform")

from covey.kernels.hopper import gemm
from kernels import interpreted


def exact(x: Activation, weight: Weight) -> torch.Tensor:
    return interpreted.widened(x, weight).to(torch.bfloat16)


def wrong(x: Activation, weight: Weight) -> torch.Tensor:
    return exact(x, weight) * 1.01


def broken() -> gemm.Multiply:
    raise ImportError("no nvcc was found\nmore lines")


def test_the_fastest_right_product_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "deep_gemm", lambda: exact)
    multiply, sentence = gemm.choose_multiply(interpreted.CPU)
    assert multiply is exact and sentence == "FP8 products run on DeepGEMM."


@pytest.mark.parametrize(
    ("make", "reason"),
    [(broken, "ImportError: no nvcc was found"), (lambda: wrong, "wrong by 1.0e-02")],
)
def test_a_slower_product_says_what_was_wrong_with_the_faster(
    monkeypatch: pytest.MonkeyPatch, make: object, reason: str
) -> None:
    monkeypatch.setattr(gemm, "deep_gemm", make)
    monkeypatch.setattr(gemm, "scaled_mm", exact)
    multiply, sentence = gemm.choose_multiply(interpreted.CPU)
    assert multiply is exact
    assert "torch.scaled_mm" in sentence and reason in sentence and "more lines" not in sentence


def test_no_right_product_is_an_error_with_both_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "deep_gemm", broken)
    monkeypatch.setattr(gemm, "scaled_mm", wrong)
    with pytest.raises(ModelError, match=r"no nvcc was found.*scaled_mm is wrong"):
        gemm.choose_multiply(interpreted.CPU)
