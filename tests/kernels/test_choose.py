"""Which kernels run a model, and what the user is told."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from covey.kernels import choose
from covey.kernels.base import AttentionConfig
from covey.kernels.reference import ReferenceKernels

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def shape(d_head: int = 128) -> AttentionConfig:
    return AttentionConfig(4, 2, d_head, 1e-6, torch.ones(d_head // 2))


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that says it is an H200, with every package there."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())


def test_a_cpu_runs_the_reference_and_says_nothing() -> None:
    kernels, sentence = choose.choose_kernels(shape(), CPU, torch.float32, False)
    assert isinstance(kernels, ReferenceKernels) and sentence is None


@pytest.mark.usefixtures("hopper")
def test_another_card_is_named_and_runs_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    reason = choose.unfit(shape(), GPU, torch.bfloat16, True)
    assert reason is not None and "NVIDIA A100" in reason


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("missing", ["triton", "fa3_fwd"])
def test_a_missing_wheel_is_named_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else object()
    )
    reason = choose.unfit(shape(), GPU, torch.bfloat16, True)
    assert reason is not None and "covey[gpu]" in reason
    assert missing.replace("_", "-") in reason


@pytest.mark.usefixtures("hopper")
def test_models_that_the_kernels_cannot_run_are_told_apart() -> None:
    assert choose.unfit(shape(), GPU, torch.bfloat16, True) is None
    assert choose.unfit(shape(64), GPU, torch.bfloat16, False) is None
    for d_head, dtype, quantised, word in (
        (64, torch.bfloat16, True, "64"),
        (96, torch.bfloat16, False, "96"),
        (128, torch.float32, False, "float32"),
    ):
        reason = choose.unfit(shape(d_head), GPU, dtype, quantised)
        assert reason is not None and word in reason
