"""Which kernels run a model on a device. The packages of a GPU are imported only there."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from covey.errors import ModelError
from covey.kernels.base import AttentionConfig, Kernels
from covey.kernels.fast import EXACT, Fast
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.reference import ReferenceKernels

_HEAD_WIDTHS = (64, 128, 256)  # powers of two that FlashAttention-3 has kernels for


def choose_kernels(
    config: AttentionConfig,
    device: torch.device,
    dtype: torch.dtype,
    quantised: bool,
    fast: Fast = EXACT,
) -> tuple[Kernels[Any], str | None]:
    """The fastest kernels that can run here, and a sentence to show the user.

    Args:
        config: the model's shape.
        device: where its tensors lie.
        dtype: of the residual stream.
        quantised: whether linear layers take FP8.
        fast: what may cost exactness.

    Returns:
        the kernels; the sentence is None on a CPU, where there is no choice.

    Raises:
        ModelError: the GPU multiplies no FP8 right, or cannot do what `fast` asks for.
    """
    if device.type != "cuda":
        _refuse(fast, "the Hopper kernels need an H100, H200 or H20, and this is a processor")
        return ReferenceKernels(config, device, dtype, quantised), None
    quantised = quantised or fast.blocks
    reason = unfit(config, device, dtype, quantised)
    if reason is not None:
        _refuse(fast, reason)
        sentence = f"This GPU runs the reference kernels, many times slower: {reason}."
        return ReferenceKernels(config, device, dtype, quantised), sentence
    from covey.kernels.hopper.kernels import load_hopper

    return load_hopper(config, device, quantised, fast.attention)


def _refuse(fast: Fast, reason: str) -> None:
    """Run nothing else than what was asked for."""
    if fast.names:
        raise ModelError(
            f"fast={'+'.join(fast.names)} cannot run here: {reason}. Leave it out: every device"
            " runs a model without it."
        )


def unfit(
    config: AttentionConfig, device: torch.device, dtype: torch.dtype, quantised: bool
) -> str | None:
    """Why the Hopper kernels cannot run a model on a GPU, None where they can."""
    if torch.cuda.get_device_capability(device) != (9, 0):
        name = torch.cuda.get_device_name(device)
        return f"the Hopper kernels need an H100, H200 or H20, and this is an {name}"
    return missing_package() or unfit_shape(config, dtype, quantised)


def missing_package() -> str | None:
    """The package that is not installed, with the mend; None where all are."""
    for module, package in (("triton", "triton"), ("fa3_fwd", "fa3-fwd")):
        if importlib.util.find_spec(module) is None:
            return f"the package {package} is not installed (pip install 'covey[gpu]')"
    return None


def unfit_shape(config: AttentionConfig, dtype: torch.dtype, quantised: bool) -> str | None:
    """Why the Hopper kernels cannot run a model of this shape, None where they can."""
    if dtype is not torch.bfloat16:
        return f"the Hopper kernels run in BF16, not in {str(dtype).removeprefix('torch.')}"
    if config.d_head not in _HEAD_WIDTHS:
        return f"they have no heads of {config.d_head}"
    # A head must be one group of the output projection's input.
    if quantised and config.d_head != FP8_GROUP:
        return f"they quantise heads of {FP8_GROUP}, and this model's are {config.d_head}"
    return None
