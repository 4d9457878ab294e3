"""Rotary frequencies of a model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from covey.models.spec import Llama3Rope, ModelSpec


def frequencies(spec: ModelSpec) -> Tensor:
    """Rotary angle a position of each pair of dimensions, (d_head / 2,) float32."""
    exponents = torch.arange(0, spec.d_head, 2, dtype=torch.float32) / spec.d_head
    plain = 1.0 / (spec.rope_theta**exponents)
    return plain if spec.rope_scaling is None else _stretched(plain, spec.rope_scaling)


def _stretched(plain: Tensor, scaling: Llama3Rope) -> Tensor:
    """Llama 3.1: long wavelengths slow down, short ones stay, the middle is blended."""
    wavelengths = 2 * math.pi / plain
    kept = scaling.original_context / wavelengths - scaling.low_factor
    kept = (kept / (scaling.high_factor - scaling.low_factor)).clamp(0, 1)
    return (1 - kept) * plain / scaling.factor + kept * plain
