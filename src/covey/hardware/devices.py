"""Which devices this machine has; no torch here."""

from __future__ import annotations

import ctypes


def has_cuda() -> bool:
    """Whether NVIDIA's driver is there and shows a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    found: int = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return found == 0 and count.value > 0
