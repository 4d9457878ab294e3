"""From the metadata of a GGUF file to a `ModelSpec`; no torch here.

As in `models.config`, every key that describes the model or its tokenizer is read below, of a
value that changes nothing, of no influence on an answer, or refused by name. Keys of other
namespaces (`general.`, those of tools) describe neither.
"""

from __future__ import annotations

from typing import Any

from covey.errors import ModelError
from covey.models.config import MOST_CONTEXT, MOST_EPS, MOST_THETA, QK_NORM, THETA, checked_spec
from covey.models.fields import Fields
from covey.models.gguf import GgufFile
from covey.models.spec import ModelSpec, WeightDtype

_ARCHITECTURES = ("llama", "qwen3")
# Word splittings whose texts llama.cpp puts a BOS before, where the file does not say.
_BEGIN_WITH_BOS = ("llama-bpe", "llama3")

_USED = frozenset(
    """context_length embedding_length block_count feed_forward_length vocab_size
    attention.head_count attention.head_count_kv attention.key_length attention.value_length
    attention.layer_norm_rms_epsilon attention.sliding_window rope.freq_base rope.dimension_count
    rope.scaling.type""".split()
)
# What else could be asked of the forward pass, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rope.scaling.factor": (1,),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.finetuned": (False,),
    "rope.scale_linear": (1,),
    "attention.causal": (True,),
    "attention.max_alibi_bias": (0,),
    "attention.clamp_kqv": (0,),
    "use_parallel_residual": (False,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "logit_scale": (1,),
    "pooling_type": (0,),
    "tensor_data_layout": ("Meta AI original pth",),  # which is how llama.cpp orders rows
}
_TOKENIZER_USED = frozenset(
    """ggml.model ggml.pre ggml.tokens ggml.token_type ggml.merges ggml.bos_token_id
    ggml.add_bos_token""".split()
)
_TOKENIZER_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "ggml.add_eos_token": (False,),
    "ggml.add_sep_token": (False,),
    "ggml.add_space_prefix": (False,),
    "ggml.remove_extra_whitespaces": (False,),
}


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """The spec that a GGUF file's metadata describes.

    Raises:
        ModelError: a key is missing or wrong, or the architecture is not supported.
    """
    every = Fields(file.metadata, file.path, where=" in its metadata")
    architecture = every.text("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise ModelError(
            f"{file.path} is of architecture {architecture}; Covey runs"
            f" {', '.join(_ARCHITECTURES)}."
        )
    fields = _described(every, f"{architecture}.")
    _refuse_stretching(file, fields)
    fields.known(_USED, _NEUTRAL, lambda key: False)
    heads, hidden = fields.whole("attention.head_count"), fields.whole("embedding_length")
    context = fields.whole("context_length", most=MOST_CONTEXT)
    vocab = len(every.items("tokenizer.ggml.tokens", str))
    d_head = fields.whole("attention.key_length", max(hidden // heads, 1))
    for key, size in (
        ("attention.value_length", d_head),
        ("rope.dimension_count", d_head),
        ("vocab_size", vocab),
    ):
        if fields.whole(key, size) != size:
            fields.refuse(key, f"by the other keys it is {size}")
    window = fields.get("attention.sliding_window")
    if window not in (None, 0) and fields.whole("attention.sliding_window") < context:
        fields.unsupported("attention.sliding_window")
    return checked_spec(
        ModelSpec(
            architecture=architecture,
            layers=fields.whole("block_count"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.whole("attention.head_count_kv", heads),
            d_head=d_head,
            ffn=fields.whole("feed_forward_length"),
            vocab=vocab,
            context=context,
            rope_theta=fields.real("rope.freq_base", 1.0, MOST_THETA, THETA.get(architecture)),
            rope_scaling=None,
            norm_eps=fields.real("attention.layer_norm_rms_epsilon", 1e-30, MOST_EPS),
            qk_norm=architecture in QK_NORM,
            tied_head="output.weight" not in file.tensors,
            bos=_bos(every),
            weight_dtype=WeightDtype.FLOAT32,
        ),
        file.path,
    )


def _bos(every: Fields) -> int | None:
    """The token that the file's tokenizer puts before every text, or None."""
    tokenizer = _described(every, "tokenizer.")
    tokenizer.known(_TOKENIZER_USED, _TOKENIZER_NEUTRAL, _harmless)
    words = tokenizer.text("ggml.pre", "")
    if not tokenizer.flag("ggml.add_bos_token", words in _BEGIN_WITH_BOS):
        return None
    bos = tokenizer.get("ggml.bos_token_id")
    if type(bos) is not int:
        tokenizer.refuse("ggml.bos_token_id", "the token that begins every prompt is needed")
    return bos


def _harmless(key: str) -> bool:
    """Of the tokenizer: what other kinds of vocabulary need, and what ends a generated text."""
    return key == "ggml.scores" or key.startswith("chat_template") or key.endswith("_token_id")


def _described(every: Fields, prefix: str) -> Fields:
    """The fields of one namespace."""
    values = {name: value for name, value in every.values.items() if name.startswith(prefix)}
    return Fields(values, every.path, prefix, every.where)


def _refuse_stretching(file: GgufFile, fields: Fields) -> None:
    stretched = fields.get("rope.scaling.type") not in (None, "none")
    for name in ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"):
        stretched |= name in file.tensors
    if stretched:
        raise ModelError(
            f"{file.path} stretches its positions (rope.scaling.type or a tensor of factors),"
            " which Covey reads from safetensors only. Use the model's safetensors folder."
        )
