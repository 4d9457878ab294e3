"""Checks that launchers and start-up trials share."""

from __future__ import annotations

from torch import Tensor

from covey.errors import RunError

GROUP = 128  # values of an activation that share one FP8 scale
_ALIGNED_ROWS = 4  # the bulk copies of scales start at multiples of 16 bytes


def require(holds: bool, kernel: str, reason: str) -> None:
    """Refuse an argument that a kernel would read wrongly.

    Raises:
        RunError: `holds` is false; names the kernel, and `reason` the argument.
    """
    if not holds:
        raise RunError(f"{kernel}: {reason}. This is a mistake in Covey; please report it.")


def require_rows(x: Tensor, width: int, kernel: str, name: str) -> None:
    """Refuse anything but (n, width) with rows in one piece."""
    require(
        x.dim() == 2 and x.shape[1] == width and x.stride(1) == 1,
        kernel,
        f"{name} is {tuple(x.shape)} with strides {x.stride()}, (n, {width}) is needed",
    )


def padded(rows: int) -> int:
    """Rows that the storage of a quantised activation has room for."""
    return -(-rows // _ALIGNED_ROWS) * _ALIGNED_ROWS


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over that of `expected`; NaN where anything was left unwritten."""
    exact = expected.double()
    return float((found.double() - exact).norm() / exact.norm())
