"""Block-scaled FP8 products by our own kernel, `fp8_gemm.cu`.

    x         (n, in) e4m3           groups of 128 columns scaled
    x scales  (n, in / 128) float32  by columns, room for a multiple of four rows
    weight    (out, in) e4m3         blocks of 128 x 128 scaled
    w scales  (out / 128, in / 128)  float32, contiguous

`multiply` gives (n, out) BF16; `add` adds that to the residual stream; `qkv` norms and rotates
queries and keys and keeps keys and values; `silu_and_mul` takes gate above up and gives
silu(gate) * up as an activation. Sums are float32; nothing is rounded before the last step.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from covey.kernels.base import Activation, Weight
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.hopper.cuda import CudaFunction, TensorMap, load_module, machine_code
from covey.kernels.hopper.launch import empty_activation, gemm_layout, require, scales_of
from covey.kernels.hopper.rotary import QkvEpilogue

_TILE = 128  # rows of a block; columns of one of its two strips
_HEAD = 128  # columns of a head in a qkv product
_STAGES = 4  # groups of 128 that are fetched ahead
_CLUSTER = 2  # blocks that share what they fetch of the weight
_BAND_BYTES = 10 << 20  # of x that are worked on together, so that the L2 cache holds them
_THREADS = 384
_WARPS = 8
_STAGE_BYTES = 3 * _TILE * _TILE + _TILE * 4 + 16  # a, two strips of b, a's scales, barriers
_SHARED = _STAGES * _STAGE_BYTES + _WARPS * 16 * 128 + 1024  # rows to store; alignment


def load_fp8_gemm(device: torch.device) -> Fp8Gemm:
    """Compile or find `fp8_gemm.cu` and load it on a GPU.

    Raises:
        ModelError: it does not compile.
        RunError: the driver refuses it.
    """
    constants = {"RING_STAGES": _STAGES, "CLUSTER_BLOCKS": _CLUSTER}
    return Fp8Gemm(machine_code("fp8_gemm.cu", ("sm90.cuh",), constants), device)


class _Heads(ctypes.Structure):
    """`Heads` of fp8_gemm.cu: a `QkvEpilogue`; all zeros for other products."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("positions", "frequencies", "query_norm")),
        *((name, ctypes.c_void_p) for name in ("key_norm", "slots", "key_cache", "value_cache")),
        ("slot_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("queries", "keys")),
        ("epsilon", ctypes.c_float),
    )


_NO_HEADS = _Heads()


class Fp8Gemm:
    """The products on one GPU.

    Args:
        code: machine code of `fp8_gemm.cu`.
        device: the GPU; it must be torch's current one whenever a product is taken.

    Raises:
        RunError: the driver refuses the code.
    """

    def __init__(self, code: bytes, device: torch.device) -> None:
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes the device's context current
            module = load_module(code)
            self._device = torch.cuda.current_device()
        self._multiply = CudaFunction(module, "fp8_gemm", _SHARED)
        self._add = CudaFunction(module, "fp8_gemm_added", _SHARED)
        self._qkv = CudaFunction(module, "fp8_gemm_heads", _SHARED)
        self._silu_and_mul = CudaFunction(module, "fp8_gemm_gated", _SHARED)
        self._blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self._map = lru_cache(maxsize=4096)(TensorMap)

    def multiply(self, x: Activation, weight: Weight) -> Tensor:
        """x @ weight.T: (n, in) by (out, in) gives (n, out) BF16.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        out = _empty_product(x, weight)
        self._launch(self._multiply, x, weight, out, None)
        return out

    def qkv(self, x: Activation, weight: Weight, epilogue: QkvEpilogue) -> Tensor:
        """A product whose columns are heads, queries before keys before values, and its epilogue.

        Args:
            x: (n, in).
            weight: (heads * 128, in).
            epilogue: how many heads are of which kind, and what is done to them.

        Returns:
            (n, heads * 128) BF16.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        out = _empty_product(x, weight)
        self._launch(self._qkv, x, weight, out, None, _described(epilogue, out))
        return out

    def add(self, x: Activation, weight: Weight, residual: Tensor) -> Tensor:
        """The product, rounded to BF16, added to `residual` (n, out) BF16 where it lies.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        shape = len(x.values), len(weight.values)
        require(
            residual.shape == shape
            and residual.is_contiguous()
            and residual.dtype is torch.bfloat16,
            "add",
            f"residual is {tuple(residual.shape)} {residual.dtype}, {shape} BF16 is needed",
        )
        self._launch(self._add, x, weight, residual, None)
        return residual

    def silu_and_mul(self, x: Activation, weight: Weight) -> Activation:
        """silu(gate) * up of (n, in) by (2 * ffn, in), gate above up: (n, ffn) in FP8.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        rows, both = len(x.values), len(weight.values)
        require(
            both % (2 * FP8_GROUP) == 0, "silu_and_mul", f"{both} rows are not twice whole groups"
        )
        out = empty_activation(rows, both // 2, x.values.device, x.values.dtype, True)
        self._launch(self._silu_and_mul, x, weight, out.values, out.scales)
        return out

    def _launch(
        self,
        function: CudaFunction,
        x: Activation,
        weight: Weight,
        out: Tensor,
        out_scales: Tensor | None,
        heads: _Heads = _NO_HEADS,
    ) -> None:
        rows, width = x.values.shape
        if not rows:
            return
        values, scales = gemm_layout(x)
        factors = scales_of(weight)
        require(
            weight.values.shape[1] == width
            and width % FP8_GROUP == 0
            and out.shape[1] % FP8_GROUP == 0,
            "product",
            f"({rows}, {width}) by {tuple(weight.values.shape)} are not whole groups",
        )
        for name, matrix in (("x", values), ("weight", weight.values), ("factors", factors)):
            require(matrix.is_contiguous(), "product", f"{name} is not contiguous")
        groups, pitch = width // FP8_GROUP, scales.stride(1) * 4
        high, part = _TILE * _CLUSTER, _TILE // _CLUSTER
        words = out.shape[1] * out.element_size() // 4
        maps = (
            self._map(values.data_ptr(), rows, width, width, (_TILE, FP8_GROUP)),
            self._map(scales.data_ptr(), groups, rows, pitch, (1, _TILE), True),
            self._map(
                weight.values.data_ptr(), len(weight.values), width, width, (part, FP8_GROUP)
            ),
            self._map(out.data_ptr(), rows, words, 4 * words, (_TILE, _TILE), True),
        )
        strip = _TILE if out_scales is not None else 2 * _TILE  # of out, by a block
        tiles = -(-rows // high) * -(-out.shape[1] // strip)
        function.launch(
            min(self._blocks // _CLUSTER, tiles) * _CLUSTER,
            _THREADS,
            [x.address for x in maps],
            [
                ctypes.c_void_p(factors.data_ptr()),
                ctypes.c_void_p(out.data_ptr()),
                ctypes.c_void_p(0 if out_scales is None else out_scales.data_ptr()),
                ctypes.c_uint32(0 if out_scales is None else out_scales.stride(1)),
                ctypes.c_uint32(rows),
                ctypes.c_uint32(out.shape[1]),
                ctypes.c_uint32(groups),
                ctypes.c_uint32(max(1, _BAND_BYTES // (high * width))),
                heads,
            ],
            self._device,
        )


def _empty_product(x: Activation, weight: Weight) -> Tensor:
    shape = len(x.values), len(weight.values)
    return torch.empty(shape, device=x.values.device, dtype=torch.bfloat16)


def _described(epilogue: QkvEpilogue, out: Tensor) -> _Heads:
    """An epilogue as the kernel reads it; RunError where it does not fit the product."""
    rows, rotary, kv = len(out), epilogue.rotary, epilogue.kv
    require(
        (epilogue.queries + 2 * epilogue.keys) * _HEAD == out.shape[1],
        "qkv",
        f"{out.shape[1]} columns are not {epilogue.queries} + 2 * {epilogue.keys} heads of {_HEAD}",
    )
    fits = rotary.positions.shape == (rows,) and rotary.positions.dtype is torch.int32
    require(fits and rotary.positions.is_contiguous(), "qkv", "positions of other tokens")
    rates = rotary.frequencies
    fits = rates.shape == (_HEAD // 2,) and rates.dtype is torch.float32
    require(fits and rates.is_contiguous(), "qkv", "frequencies of other heads")
    found = _Heads(
        positions=rotary.positions.data_ptr(),
        frequencies=rotary.frequencies.data_ptr(),
        queries=epilogue.queries,
        keys=epilogue.keys,
        epsilon=epilogue.epsilon,
    )
    if epilogue.norms is not None:
        for norm in epilogue.norms:
            fits = norm.shape == (_HEAD,) and norm.dtype is torch.bfloat16
            require(fits and norm.is_contiguous(), "qkv", "a norm is not (128,) BF16")
        found.query_norm, found.key_norm = (norm.data_ptr() for norm in epilogue.norms)
    if kv is not None and rotary.slots is not None:
        for kv_cache in (kv.k, kv.v):
            fits = kv_cache.shape[1:] == (epilogue.keys, _HEAD) and kv_cache.dtype is torch.bfloat16
            require(fits and kv_cache.is_contiguous(), "qkv", "the KV cache is of another shape")
        fits = rotary.slots.shape == (rows,) and rotary.slots.dtype is torch.int32
        require(fits, "qkv", "slots of other tokens")
        found.slots = rotary.slots.data_ptr()
        found.key_cache, found.value_cache = kv.k.data_ptr(), kv.v.data_ptr()
        found.slot_bytes = epilogue.keys * _HEAD * 2
    return found
