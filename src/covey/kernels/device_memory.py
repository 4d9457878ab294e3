"""A device's memory: copies into it, and which errors say that it is short, or the machine's."""

from __future__ import annotations

import errno

import torch
from torch import Tensor

from covey.errors import RunError

# What CUDA, its libraries, Triton and torch's allocator on a processor say where they have no
# exception of its own for it.
_WORDS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "can't start new thread",
)


def upload(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host without waiting.

    It goes by pinned memory: a copy from any other waits for the work that the GPU has before it.
    """
    if device.type == "cuda":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether less memory would have done; any other failure is none of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = isinstance(error, RuntimeError | RunError)
    return said and any(words in str(error) for words in _WORDS)
