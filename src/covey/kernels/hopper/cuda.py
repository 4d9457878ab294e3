"""CUDA kernels of our own: compiled once and kept, loaded and launched by the driver.

NVRTC comes with torch and takes about a second; no compiler need be installed. The driver is
called through ctypes: a tensor's description must lie at a multiple of 64 bytes, which the Python
bindings do not ensure.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from covey.errors import ModelError, RunError
from covey.hardware.paths import cache_folder, write_whole

_ARCHITECTURE = "sm_90a"
_MAP_BYTES = 128
_BYTE, _FLOAT32 = 0, 7  # CUtensorMapDataType
_NO_INTERLEAVE, _NO_SWIZZLE, _SWIZZLE_128 = 0, 0, 3
_PROMOTE_TO_256, _FILL_ZERO = 3, 0
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def machine_code(name: str, headers: Sequence[str], constants: Mapping[str, int]) -> bytes:
    """A source's code for Hopper, from the cache folder where it was compiled before.

    Args:
        name: of the file.
        headers: files that it includes.
        constants: macros to define.

    Raises:
        ModelError: it does not compile; with the compiler's first error.
    """
    files = {part: Path(__file__).with_name(part).read_bytes() for part in (name, *headers)}
    options = [f"--gpu-architecture={_ARCHITECTURE}", "--std=c++17"]
    options += [f"-D{key}={value}" for key, value in sorted(constants.items())]
    mark = hashlib.sha256(b"\0".join([*files.values(), *map(str.encode, options)]))
    file = f"{Path(name).stem}-{_ARCHITECTURE}-{mark.hexdigest()[:20]}.cubin"
    path = cache_folder() / "kernels" / file
    try:
        return path.read_bytes()
    except OSError:
        code = _compile(name, files, options)
        write_whole(path, code)
        return code


def _compile(name: str, files: dict[str, bytes], options: list[str]) -> bytes:
    from cuda.bindings import nvrtc

    def checked(answer: tuple[Any, ...]) -> Any:
        if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise ModelError(f"NVRTC could not compile {name}: {answer[0].name}.")
        return answer[1] if len(answer) > 1 else None

    headers = [part for part in files if part != name]
    program = checked(
        nvrtc.nvrtcCreateProgram(
            files[name],
            name.encode(),
            len(headers),
            [files[part] for part in headers],
            [part.encode() for part in headers],
        )
    )
    try:
        arguments = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise ModelError(f"NVRTC could not compile {name}: {_first_error(log)}")
        code: bytes = b" " * int(checked(nvrtc.nvrtcGetCUBINSize(program)))
        checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _first_error(log: bytes) -> str:
    lines = log.rstrip(b"\0 \n").decode(errors="replace").splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no reason")


class TensorMap:
    """A matrix, and the box of it that a bulk copy takes.

    What a box has outside the matrix arrives as zeros.

    Args:
        address: of the first value, a multiple of 16.
        rows, columns: of the matrix.
        pitch: bytes from row to row, a multiple of 16.
        box: rows and columns of the box.
        floats: float32 values instead of bytes. Rows of 128 bytes arrive swizzled, floats
            as they are.

    Raises:
        RunError: the driver refuses it.
    """

    __slots__ = ("_memory", "address")

    def __init__(
        self,
        address: int,
        rows: int,
        columns: int,
        pitch: int,
        box: tuple[int, int],
        floats: bool = False,
    ) -> None:
        self._memory = ctypes.create_string_buffer(_MAP_BYTES + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        call_driver(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(self.address),
            _FLOAT32 if floats else _BYTE,
            2,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 2)(columns, rows),
            (ctypes.c_uint64 * 1)(pitch),
            (ctypes.c_uint32 * 2)(box[1], box[0]),
            (ctypes.c_uint32 * 2)(1, 1),
            _NO_INTERLEAVE,
            _NO_SWIZZLE if floats else _SWIZZLE_128,
            _PROMOTE_TO_256,
            _FILL_ZERO,
        )


class CudaFunction:
    """A kernel.

    Args:
        module: as `load_module` returned it.
        name: its name there.
        shared: bytes of shared memory that a block gets.
    """

    def __init__(self, module: ctypes.c_void_p, name: str, shared: int) -> None:
        self._function = ctypes.c_void_p()
        self._shared = shared
        call_driver("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        call_driver("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, shared)

    def launch(
        self, blocks: int, threads: int, arguments: list[int], values: list[Any], device: int
    ) -> None:
        """Launch on torch's current stream.

        Args:
            blocks, threads: of a grid and of a block.
            arguments: addresses of those that are passed by value, kept by the caller.
            values: ctypes scalars that follow them.
            device: number of the GPU.
        """
        addresses = [*arguments, *map(ctypes.addressof, values)]
        stream = torch.cuda.current_stream(device).cuda_stream
        call_driver(
            "cuLaunchKernel",
            self._function,
            *(blocks, 1, 1, threads, 1, 1, self._shared),
            ctypes.c_void_p(stream),
            (ctypes.c_void_p * len(addresses))(*addresses),
            None,
        )


def load_module(code: bytes) -> ctypes.c_void_p:
    """Load machine code into the current device's context."""
    module = ctypes.c_void_p()
    call_driver("cuModuleLoadData", ctypes.byref(module), code)
    return module


def call_driver(name: str, *arguments: object) -> None:
    """Call the driver.

    Raises:
        RunError: it fails; with its name and reason.
    """
    library = _library()
    status = getattr(library, name)(*arguments)
    if status:
        reason = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(reason))
        text = (reason.value or b"unknown error").decode()
        raise RunError(f"CUDA's driver refused {name}: {text} ({status}).")


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
