"""Keys and values of resident tokens: two tensors a layer, one row a slot."""

from __future__ import annotations

import torch

from covey.engine.base import OutOfMemory
from covey.kernels.base import KvLayer
from covey.kernels.device_memory import is_out_of_memory
from covey.models.spec import ModelSpec


class KvCachePool:
    """The tensors; who owns which slot is the business of `radix_tree`.

    Args:
        spec: the model.
        device, dtype: of the keys and values.
        slots: tokens.

    Attributes:
        layers: (slots, kv_heads, d_head) keys and values of each layer, not initialised:
            a slot is written before it is read.

    Raises:
        OutOfMemory: the device has no room for it.
    """

    def __init__(
        self, spec: ModelSpec, device: torch.device, dtype: torch.dtype, slots: int
    ) -> None:
        self.slots = slots
        shape = (slots, spec.kv_heads, spec.d_head)
        try:
            self.layers = [
                KvLayer(
                    torch.empty(shape, device=device, dtype=dtype),
                    torch.empty(shape, device=device, dtype=dtype),
                )
                for _ in range(spec.layers)
            ]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            size = slots * spec.kv_bytes_per_token(dtype.itemsize)
            raise OutOfMemory(
                f"{slots:,} tokens of keys and values need {size:,} bytes, which {device}"
                " does not have."
            ) from None
