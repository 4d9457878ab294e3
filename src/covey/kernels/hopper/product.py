"""Block-scaled FP8 products by our own kernel, `product.cu`.

    x         (n, in) e4m3           groups of 128 columns scaled
    x scales  (n, in / 128) float32  by columns, room for a multiple of four rows
    weight    (out, in) e4m3         blocks of 128 x 128 scaled
    w scales  (out / 128, in / 128)  float32, contiguous

`product` gives (n, out) BF16; `added` adds that to the residual stream; `heads` norms and turns
queries and keys and keeps keys and values; `gated` takes gate above up and gives silu(gate) * up
as an activation. Sums are float32; nothing is rounded before the last step.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from covey.kernels.base import Activation, Weight
from covey.kernels.hopper import driver
from covey.kernels.hopper.checks import GROUP, require
from covey.kernels.hopper.compiler import machine_code
from covey.kernels.hopper.fp8 import empty_activation, multiply_layout, scales_of
from covey.kernels.hopper.rotate import HeadForm

_TILE = 128  # rows of a block; columns of one of its two strips
_STAGES = 4  # groups of 128 that are fetched ahead
_CLUSTER = 2  # blocks that share what they fetch of the weight
_BAND_BYTES = 10 << 20  # of x that are worked on together, so that the L2 cache holds them
_THREADS = 384
_WARPS = 8
_STAGE_BYTES = 3 * _TILE * _TILE + _TILE * 4 + 16  # a, two strips of b, a's scales, barriers
_SHARED = _STAGES * _STAGE_BYTES + _WARPS * 16 * 128 + 1024  # rows to store; alignment


def load_products(device: torch.device) -> Fp8Products:
    """Compile or find `product.cu` and load it on a GPU.

    Raises:
        ModelError: it does not compile.
        RunError: the driver refuses it.
    """
    constants = {"RING_STAGES": _STAGES, "CLUSTER_BLOCKS": _CLUSTER}
    return Fp8Products(machine_code("product.cu", ("sm90.cuh",), constants), device)


class _Heads(ctypes.Structure):
    """`Heads` of product.cu; all zeros where a product is not by heads."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("positions", "frequencies", "query_norm", "key_norm", "slots")
        ),
        *((name, ctypes.c_void_p) for name in ("key_cache", "value_cache")),
        ("slot_bytes", ctypes.c_uint64),
        ("queries", ctypes.c_uint32),
        ("keys", ctypes.c_uint32),
        ("epsilon", ctypes.c_float),
    )


_NO_HEADS = _Heads()


class Fp8Products:
    """The products on one GPU.

    Args:
        code: machine code of `product.cu`.
        device: the GPU; it must be torch's current one whenever a product is taken.

    Raises:
        RunError: the driver refuses the code.
    """

    def __init__(self, code: bytes, device: torch.device) -> None:
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes the device's context current
            module = driver.load(code)
            self._device = torch.cuda.current_device()
        self._product = driver.Function(module, "fp8_gemm", _SHARED)
        self._added = driver.Function(module, "fp8_gemm_added", _SHARED)
        self._heads = driver.Function(module, "fp8_gemm_heads", _SHARED)
        self._gated = driver.Function(module, "fp8_gemm_gated", _SHARED)
        self._blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self._map = lru_cache(maxsize=4096)(driver.TensorMap)

    def product(self, x: Activation, weight: Weight) -> Tensor:
        """x @ weight.T: (n, in) by (out, in) gives (n, out) BF16.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        out = _empty_product(x, weight)
        self._launch(self._product, x, weight, out, None)
        return out

    def heads(self, x: Activation, weight: Weight, form: HeadForm) -> Tensor:
        """A product whose columns are heads, queries before keys before values, turned and kept.

        Args:
            x: (n, in).
            weight: (heads * 128, in).
            form: how many heads are of which kind, and what is done to them.

        Returns:
            (n, heads * 128) BF16.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        out = _empty_product(x, weight)
        self._launch(self._heads, x, weight, out, None, _described(form, out))
        return out

    def added(self, x: Activation, weight: Weight, residual: Tensor) -> Tensor:
        """The product, rounded to BF16, added to `residual` (n, out) BF16 where it lies.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        shape = len(x.values), len(weight.values)
        require(
            residual.shape == shape
            and residual.is_contiguous()
            and residual.dtype is torch.bfloat16,
            "added",
            f"residual is {tuple(residual.shape)} {residual.dtype}, {shape} BF16 is needed",
        )
        self._launch(self._added, x, weight, residual, None)
        return residual

    def gated(self, x: Activation, weight: Weight) -> Activation:
        """silu(gate) * up of (n, in) by (2 * ffn, in), gate above up: (n, ffn) in FP8.

        Raises:
            RunError: a shape or stride that the kernel cannot read.
        """
        rows, both = len(x.values), len(weight.values)
        require(both % (2 * GROUP) == 0, "gated", f"{both} rows are not twice whole groups")
        out = empty_activation(rows, both // 2, x.values.device, x.values.dtype, True)
        self._launch(self._gated, x, weight, out.values, out.scales)
        return out

    def _launch(
        self,
        function: driver.Function,
        x: Activation,
        weight: Weight,
        out: Tensor,
        out_scales: Tensor | None,
        heads: _Heads = _NO_HEADS,
    ) -> None:
        rows, width = x.values.shape
        if not rows:
            return
        values, scales = multiply_layout(x)
        factors = scales_of(weight)
        require(
            weight.values.shape[1] == width and width % GROUP == 0 and out.shape[1] % GROUP == 0,
            "product",
            f"({rows}, {width}) by {tuple(weight.values.shape)} are not whole groups",
        )
        for name, matrix in (("x", values), ("weight", weight.values), ("factors", factors)):
            require(matrix.is_contiguous(), "product", f"{name} is not contiguous")
        groups, pitch = width // GROUP, scales.stride(1) * 4
        high, part = _TILE * _CLUSTER, _TILE // _CLUSTER
        words = out.shape[1] * out.element_size() // 4
        maps = (
            self._map(values.data_ptr(), rows, width, width, (_TILE, GROUP)),
            self._map(scales.data_ptr(), groups, rows, pitch, (1, _TILE), True),
            self._map(weight.values.data_ptr(), len(weight.values), width, width, (part, GROUP)),
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


def _described(form: HeadForm, out: Tensor) -> _Heads:
    """A form as the kernel reads it; RunError where it does not fit the product."""
    rows, turn, kv = len(out), form.turn, form.kv
    require(
        out.shape[1] % _TILE == 0 and (form.queries + 2 * form.keys) * _TILE == out.shape[1],
        "heads",
        f"{out.shape[1]} columns are not {form.queries} + 2 * {form.keys} heads of {_TILE}",
    )
    fits = turn.positions.shape == (rows,) and turn.positions.dtype is torch.int32
    require(fits and turn.positions.is_contiguous(), "heads", "positions of other tokens")
    rates = turn.frequencies
    fits = rates.shape == (_TILE // 2,) and rates.dtype is torch.float32
    require(fits and rates.is_contiguous(), "heads", "frequencies of other heads")
    found = _Heads(
        positions=turn.positions.data_ptr(),
        frequencies=turn.frequencies.data_ptr(),
        queries=form.queries,
        keys=form.keys,
        epsilon=form.epsilon,
    )
    if form.norms is not None:
        for norm in form.norms:
            fits = norm.shape == (_TILE,) and norm.dtype is torch.bfloat16
            require(fits and norm.is_contiguous(), "heads", "a norm is not (128,) BF16")
        found.query_norm, found.key_norm = (norm.data_ptr() for norm in form.norms)
    if kv is not None and turn.slots is not None:
        for kv_cache in (kv.k, kv.v):
            fits = kv_cache.shape[1:] == (form.keys, _TILE) and kv_cache.dtype is torch.bfloat16
            require(fits and kv_cache.is_contiguous(), "heads", "the KV cache is of another shape")
        fits = turn.slots.shape == (rows,) and turn.slots.dtype is torch.int32
        require(fits, "heads", "slots of other tokens")
        found.slots = turn.slots.data_ptr()
        found.key_cache, found.value_cache = kv.k.data_ptr(), kv.v.data_ptr()
        found.slot_bytes = form.keys * _TILE * 2
    return found
