"""What a device says of itself, as Covey's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from covey.engine.base import OutOfMemory
from covey.errors import RunError, first_line
from covey.kernels.device_memory import is_out_of_memory

# How errors of CUDA begin that are no AcceleratorError.
_FAILURES = ("CUDA error", "Triton Error")


@contextmanager
def device_errors() -> Iterator[None]:
    """Errors of the block: a lack of memory, a device that failed, and all others as they are.

    Raises:
        OutOfMemory: with less memory it may do.
        RunError: the device failed.
    """
    try:
        yield
    except OutOfMemory:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"The device is out of memory ({first_line(error)}).") from None
        named = isinstance(error, RuntimeError) and str(error).startswith(_FAILURES)
        if not named and not isinstance(error, torch.AcceleratorError):
            raise
        raise RunError(
            f"The device failed while it ran a batch ({first_line(error)}). What was answered "
            "before is kept; run the query again, in a new process."
        ) from None
