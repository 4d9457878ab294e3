"""A GGUF file as a checkpoint: Hugging Face names, and rows in Hugging Face order."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.models.gguf import GgufFile
from covey.models.spec import ModelSpec

_OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")


class GgufCheckpoint:
    """Dequantised tensors of a GGUF file, float32."""

    def __init__(self, file: GgufFile, spec: ModelSpec) -> None:
        self._file = file
        self._spec = spec

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Checkpoint.read`."""
        tensor = torch.from_numpy(self._file.read(_gguf_name(name), shape))
        # llama.cpp stores a Llama's queries and keys for RoPE over neighbouring dimensions.
        if self._spec.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            half = self._spec.d_head // 2
            return tensor.view(-1, half, 2, shape[1]).transpose(1, 2).reshape(shape)
        return tensor

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        return self._file.fingerprint()


def _gguf_name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _INNER:
        raise ModelError(f"GGUF files hold no tensor for {name}.")
    return f"blk.{match[1]}.{_INNER[match[2]]}.weight"
