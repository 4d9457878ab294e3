"""Facts about the machine that planning may ask; no torch here."""

from __future__ import annotations

from pathlib import Path


def has_nvidia_gpu() -> bool:
    """Whether the NVIDIA driver shows a GPU, in this machine or through WSL."""
    if Path("/dev/dxg").exists():
        return Path("/usr/lib/wsl/lib/libcuda.so.1").exists()
    return Path("/dev/nvidiactl").exists() and any(Path("/dev").glob("nvidia[0-9]*"))
