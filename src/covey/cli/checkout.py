"""Where the source checkout is, for the commands that need more than the package."""

from __future__ import annotations

from pathlib import Path

from covey.errors import InputError


def in_checkout(relative: str, command: str) -> Path:
    """The path of a file of the checkout that this package runs from.

    Raises:
        InputError: the package was installed without its checkout, or the file is gone.
    """
    root = Path(__file__).resolve().parents[3]
    path = root / relative
    if path.is_file():
        return path
    if (root / "pyproject.toml").is_file():
        raise InputError(f"{command} needs {path}, which is missing. Restore it from git.")
    raise InputError(
        f"{command} needs {relative} of Covey's source checkout, and this Covey was installed"
        " without one. Clone the repository and run `make demo` or `pip install -e .` there."
    )
