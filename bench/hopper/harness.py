"""What the commands share: the device, times, limits of errors, figures and their file.

Times are those of hours of work: warm, sustained, on data that no cache holds.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Results(dict[str, Any]):
    """A command's figures: printed as they are found, and written to a file.

    Attributes:
        good: whether no error was too large and nothing failed.
    """

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(versions=versions())
        self.good = True
        self._path = path
        print(self["versions"], flush=True)

    def save(self) -> None:
        """Write the file, where one was asked for."""
        if self._path is not None:
            self._path.write_text(json.dumps(self, indent=1) + "\n")

    def error(self, label: str, found: float, limit: float) -> None:
        """Keep an error, which must be below a limit."""
        good = found < limit
        self.good &= good
        self.setdefault("errors", {})[label] = found
        print(f"  {label:<66}{found:10.2e}{'' if good else '  TOO LARGE'}", flush=True)

    def time(self, label: str, seconds: float, tokens: int, amount: float = 0.0) -> None:
        """Keep a layer's time for some tokens: also of 36 layers, a token.

        Args:
            amount: bytes or operations, shown as TB or TFLOP a second.
        """
        self.setdefault("times", {})[label] = seconds
        rate = f"{amount / seconds / 1e12:12.2f}" if amount else ""
        print(
            f"  {label:<66}{seconds * 1e6:12.1f}{seconds / tokens * 36e6:13.3f}{rate}", flush=True
        )

    def fail(self, text: str) -> None:
        """Keep what is wrong."""
        self.good = False
        self.setdefault("failed", []).append(text)
        print(f"FAILED: {text}", flush=True)

    def attempt(self, label: str, work: Callable[[], object]) -> bool:
        """Do something whose failure is printed and ends nothing else; whether it was done."""
        started = time.perf_counter()
        try:
            work()
        except Exception as problem:  # whatever CUDA or the engine raises
            self.fail(f"{label}: {type(problem).__name__}: {problem}")
            return False
        finally:
            self.setdefault("took", {})[label] = time.perf_counter() - started
        return True


def versions() -> str:
    """The card and what runs on it, one line."""
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "no GPU"
    found = [name, f"torch {torch.__version__}"]
    for package in ("triton", "fa3-fwd", "cuda-bindings", "sgl-deep-gemm"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


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
    if DEVICE.type != "cuda":
        started = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - started) / count
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronize()
    start.record()
    for _ in range(count):
        work()
    stop.record()
    synchronize()
    return float(start.elapsed_time(stop)) / 1e3 / count


def poison() -> None:
    """Leave NaN in the memory that the next outputs will be made of.

    All ones are NaN in FP8, BF16 and FP32; the allocator hands freed blocks out again.
    """
    if DEVICE.type == "cuda":
        small = [torch.full((1 << 19,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
        large = torch.full((8 << 30,), 255, dtype=torch.uint8, device="cuda")
        synchronize()
        del small, large


def open_engine(model: str | Path, device: str = DEVICE.type, **options: Any) -> LoadedEngine:
    """A local model, loaded and timed; options as `LocalModel` has them."""
    started = time.perf_counter()
    engine = LocalModel(model, device=device, **options).open()
    assert isinstance(engine, LoadedEngine)
    print(f"{engine.name} loaded in {time.perf_counter() - started:.1f} s", flush=True)
    return engine
