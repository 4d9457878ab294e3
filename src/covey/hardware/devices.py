"""Which devices this machine has; no torch here."""

from __future__ import annotations

import ctypes
import os

from covey.hardware.facts import Device, cpu_facts, gpu_facts

_NAME_BYTES = 256


def has_cuda() -> bool:
    """Whether NVIDIA's driver is there and shows a device."""
    return _driver() is not None


def gpu_name() -> str | None:
    """What NVIDIA's driver calls the first GPU, None where there is none."""
    driver = _driver()
    if driver is None:
        return None
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    failed = driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetName(
        name, _NAME_BYTES, device
    )
    return None if failed else name.value.decode(errors="replace")


def present_device(gpu: bool) -> Device | None:
    """The facts of this machine's GPU or processor, None for a GPU that is not known here."""
    if not gpu:
        return cpu_facts()
    name = gpu_name()
    return None if name is None else gpu_facts(name)


def memory_bytes() -> int | None:
    """The memory of this machine, None where its system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _driver() -> ctypes.CDLL | None:
    """NVIDIA's driver, initialised, where it shows a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return None if failed or count.value < 1 else driver
