"""What a dense decoder is made of, and what a token of it costs; no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class WeightDtype(Enum):
    """How the large matrices of a checkpoint are stored, dequantised GGUF being FLOAT32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8_e4m3"

    @property
    def bytes(self) -> int:
        """Bytes of one weight, block scales not counted."""
        return {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3": 1}[self.value]


@dataclass(frozen=True, slots=True)
class Llama3Rope:
    """The frequency stretching of Llama 3.1 and later.

    Wavelengths above `original_context / low_factor` positions are divided by `factor`,
    those below `original_context / high_factor` are kept, and between them the two are
    interpolated.
    """

    factor: float
    low_factor: float
    high_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A dense Llama-family decoder: pre-norm, grouped-query attention, gated SiLU.

    Attributes:
        architecture: "llama" or "qwen3"; they differ in `qk_norm` alone.
        hidden: width of the residual stream.
        heads, kv_heads: query heads, and the key/value heads they share.
        d_head: width of one head.
        ffn: width of the gated feed-forward layer.
        vocab: rows of the embedding.
        context: longest prompt, in tokens.
        rope_theta: base of the rotary frequencies.
        rope_scaling: their stretching, or None.
        norm_eps: epsilon of every RMS norm.
        qk_norm: whether queries and keys are normed a head before RoPE.
        tied_head: whether the output head is the embedding.
        bos: token that the tokenizer puts before every prompt, or None.
        weight_dtype: dtype of the large matrices on disk.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    d_head: int
    ffn: int
    vocab: int
    context: int
    rope_theta: float
    rope_scaling: Llama3Rope | None
    norm_eps: float
    qk_norm: bool
    tied_head: bool
    bos: int | None
    weight_dtype: WeightDtype

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.d_head

    @property
    def kv_width(self) -> int:
        """Width of all key heads together, which is that of the value heads."""
        return self.kv_heads * self.d_head

    @property
    def attention_parameters(self) -> int:
        """Weights of the four attention projections over all layers."""
        return self.layers * self.hidden * 2 * (self.q_width + self.kv_width)

    @property
    def mlp_parameters(self) -> int:
        """Weights of the three feed-forward projections over all layers."""
        return self.layers * 3 * self.hidden * self.ffn

    @property
    def linear_parameters(self) -> int:
        """P: weights that every fresh token multiplies. Embedding and head not counted."""
        return self.attention_parameters + self.mlp_parameters

    @property
    def parameters(self) -> int:
        """All weights, norms not counted."""
        tables = self.vocab * self.hidden * (1 if self.tied_head else 2)
        return self.linear_parameters + tables

    @property
    def flops_per_token(self) -> int:
        """Linear work of one fresh token: 2·P."""
        return 2 * self.linear_parameters

    @property
    def flops_per_pair(self) -> int:
        """Attention work of one (query, key) pair over all layers and heads."""
        return 4 * self.heads * self.d_head * self.layers

    def kv_bytes_per_token(self, value_bytes: int = 2) -> int:
        """Bytes of one token's keys and values over all layers; 2 bytes a value is BF16."""
        return 2 * self.layers * self.kv_width * value_bytes


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """The unit costs of a model as it runs on a device.

    Attributes:
        projection_flops: of the four attention projections, a fresh token.
        mlp_flops: of the feed-forward layers, a fresh token.
        pair_flops: of attention, a (query, key) pair.
        kv_bytes: of one token's keys and values.
        projection_bytes, mlp_bytes: weights read once a pass.
        compute: dtype in which the weights are multiplied.
        attention: dtype in which attention is computed and kept.
        budget: fresh tokens of a full pass.
    """

    projection_flops: float
    mlp_flops: float
    pair_flops: float
    kv_bytes: float
    projection_bytes: float
    mlp_bytes: float
    compute: WeightDtype
    attention: WeightDtype
    budget: int


def costs_of(
    spec: ModelSpec, compute: WeightDtype, attention: WeightDtype, budget: int
) -> ModelCosts:
    """The unit costs of a model: 2 operations a weight and token, 4·heads·d_head·layers a pair."""
    return ModelCosts(
        projection_flops=2.0 * spec.attention_parameters,
        mlp_flops=2.0 * spec.mlp_parameters,
        pair_flops=float(spec.flops_per_pair),
        kv_bytes=float(spec.kv_bytes_per_token(attention.bytes)),
        projection_bytes=float(spec.attention_parameters * compute.bytes),
        mlp_bytes=float(spec.mlp_parameters * compute.bytes),
        compute=compute,
        attention=attention,
        budget=budget,
    )
