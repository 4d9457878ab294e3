"""The most memory that a run took: of the GPU where there is one, else of the process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def _on_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


def reset_peak() -> None:
    """Begin to look anew."""
    if _on_gpu():
        sys.modules["torch"].cuda.reset_peak_memory_stats()
    try:  # Linux forgets the process's peak when it is asked to
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_bytes() -> int:
    """Bytes since the last `reset_peak`; of PyTorch's tensors on a GPU."""
    if _on_gpu():
        return int(sys.modules["torch"].cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
