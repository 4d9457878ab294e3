"""What CUDA's driver does for kernels of our own: load, describe tensors, launch.

Through ctypes: a tensor's description must lie at a multiple of 64 bytes, which the Python
bindings do not ensure.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from covey.errors import RunError

_MAP_BYTES = 128
_BYTE, _FLOAT32 = 0, 7  # CUtensorMapDataType
_NO_INTERLEAVE, _NO_SWIZZLE, _SWIZZLE_128 = 0, 0, 3
_PROMOTE_TO_256, _FILL_ZERO = 3, 0
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


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
        call(
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


class Function:
    """A kernel.

    Args:
        module: as `load` returned it.
        name: its name there.
        shared: bytes of shared memory that a block gets.
    """

    def __init__(self, module: ctypes.c_void_p, name: str, shared: int) -> None:
        self._function = ctypes.c_void_p()
        self._shared = shared
        call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, shared)

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
        call(
            "cuLaunchKernel",
            self._function,
            *(blocks, 1, 1, threads, 1, 1, self._shared),
            ctypes.c_void_p(stream),
            (ctypes.c_void_p * len(addresses))(*addresses),
            None,
        )


def load(code: bytes) -> ctypes.c_void_p:
    """Load machine code into the current device's context."""
    module = ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), code)
    return module


def call(name: str, *arguments: object) -> None:
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
