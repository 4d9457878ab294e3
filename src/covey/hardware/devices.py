"""Which devices this machine has, what their makers say of them, and what an hour costs.

No torch here: NVIDIA's driver is asked itself.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

# Memory of a machine whose maker says nothing that can be read: two channels of DDR4-3200.
_CPU_BANDWIDTH = 51.2e9
# Single-precision operations of a core and cycle: two fused multiply-add units of the
# widest vectors it has.
_OPERATIONS = (("avx512f", 64), ("avx2", 32), ("asimd", 16), ("neon", 16), ("sse2", 8))
_CPU_HERTZ, _CPU_MEMORY = 2.5e9, 8e9  # where the system does not say
# US dollars for a core and hour.
_CORE_PRICE = 0.05
_NAME_BYTES = 256


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its datasheet has it, dense rates, no sparsity.

    Attributes:
        name: as reports call it.
        flops: operations a second by dtype: "float8_e4m3", "bfloat16", "float16",
            "float32"; a dtype that is missing is computed as the next wider one.
        bandwidth: bytes a second between memory and the cores.
        memory: bytes.
        price: US dollars an hour: a usual price on demand, to be replaced by one's own.
    """

    name: str
    flops: dict[str, float]
    bandwidth: float
    memory: float
    price: float

    def peak(self, dtype: str) -> float:
        """Operations a second in a dtype, or in the next wider one that the device has."""
        wider = ("float8_e4m3", "bfloat16", "float32")
        start = wider.index("bfloat16" if dtype == "float16" else dtype)
        return next(self.flops[name] for name in wider[start:] if name in self.flops)


def _gpu(
    name: str, fp8: float | None, bf16: float, fp32: float, bandwidth: float, gb: int, price: float
) -> Device:
    """A GPU by its datasheet: TFLOPS, TB/s, GB, dollars."""
    flops = {"bfloat16": bf16 * 1e12, "float32": fp32 * 1e12}
    if fp8 is not None:
        flops["float8_e4m3"] = fp8 * 1e12
    return Device(name, flops, bandwidth * 1e12, gb * 1e9, price)


# By a pattern in the driver's name of the device, the more special one first.
GPUS = (
    (r"\bB200\b", _gpu("B200", 4500, 2250, 75, 8.0, 180, 6.25)),
    (r"\bH200\b", _gpu("H200", 1979, 989, 67, 4.8, 141, 4.54)),
    (r"\bH100 PCIe", _gpu("H100 PCIe", 1513, 756, 51, 2.0, 80, 2.99)),
    (r"\bH100\b", _gpu("H100", 1979, 989, 67, 3.35, 80, 3.95)),
    (r"\bA100.*40GB", _gpu("A100 40GB", None, 312, 19.5, 1.555, 40, 2.10)),
    (r"\bA100\b", _gpu("A100", None, 312, 19.5, 2.039, 80, 2.50)),
    (r"\bL40S\b", _gpu("L40S", 733, 362, 91.6, 0.864, 48, 1.95)),
    (r"\bRTX 4090\b", _gpu("RTX 4090", 330, 165, 82.6, 1.008, 24, 0.69)),
)


def gpu_facts(name: str) -> Device | None:
    """The facts of a GPU by its driver's name for it, None where they are not known here."""
    return next((device for pattern, device in GPUS if re.search(pattern, name)), None)


def cpu_facts() -> Device:
    """This machine's processor: cores that may be used, clock and vector width.

    Its bandwidth is an assumption (see `_CPU_BANDWIDTH`): no file tells it.
    """
    cores = _cores()
    info = _read(Path("/proc/cpuinfo"))
    words = set(info.split())
    operations = next((n for word, n in _OPERATIONS if word in words), 8)
    if platform.machine() in ("arm64", "aarch64"):
        operations = 16
    flops = cores * _hertz(info) * operations
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    maker = " ".join(model[1].split()) if model else platform.machine() or "CPU"
    name = f"{maker}, {cores} core{'s' if cores > 1 else ''}"
    memory = float(memory_bytes() or _CPU_MEMORY)
    return Device(name, {"float32": flops}, _CPU_BANDWIDTH, memory, _CORE_PRICE * cores)


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


def _cores() -> int:
    """Cores that this process may use, and that it is told to."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(threads)) if threads.isdigit() and int(threads) else cores


def _hertz(info: str) -> float:
    fastest = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")).strip()
    if fastest.isdigit():
        return float(fastest) * 1e3
    found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", info, re.MULTILINE)
    return max((float(mhz) for mhz in found), default=_CPU_HERTZ / 1e6) * 1e6


def _driver() -> ctypes.CDLL | None:
    """NVIDIA's driver, initialised, where it shows a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return None if failed or count.value < 1 else driver


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
