"""Time GPU work as it runs for hours: warm, sustained, on data that no cache holds."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import torch


def sustained(work: Callable[[], object], seconds: float = 0.8) -> float:
    """Seconds a call, over a run of about `seconds`.

    The card lowers its clock under load within some tens of milliseconds, so that ten
    launches after a pause read too fast.
    """
    for _ in range(3):
        work()
    once = _timed(work, 3)
    return _timed(work, max(5, int(seconds / max(once, 1e-6))))


def _timed(work: Callable[[], object], count: int) -> float:
    start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    stop: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        work()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1e3 / count


def poison() -> None:
    """Leave NaN in the memory that the next outputs will be made of.

    All ones are NaN in FP8, BF16 and FP32; the allocator hands freed blocks out again.
    """
    small = [torch.full((1 << 19,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
    large = torch.full((8 << 30,), 255, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    del small, large


def versions() -> str:
    """The card and what runs on it, one line."""
    found = [torch.cuda.get_device_name(), f"torch {torch.__version__}"]
    for package in ("triton", "fa3-fwd", "cuda-bindings", "sgl-deep-gemm"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)
