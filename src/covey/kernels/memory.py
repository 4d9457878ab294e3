"""Whether an error says that memory is short: of a device, or of the machine."""

from __future__ import annotations

import errno

import torch

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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether less memory would have done; any other failure is none of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = isinstance(error, RuntimeError | RunError)
    return said and any(words in str(error) for words in _WORDS)
