"""From a model folder's own description to a `ModelSpec`; no torch here.

Every field of config.json is one of four: read below, of a value that changes nothing, of no
influence on an answer, or refused by name. A new architecture that is a dense decoder enters
its name in `_ARCHITECTURES`; one that computes something else also gets a module beside
`models.causal_lm`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from covey.errors import ModelError
from covey.models.fields import Fields
from covey.models.file_reader import read_json
from covey.models.spec import Llama3Rope, ModelSpec, WeightDtype

_ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}
QK_NORM = ("qwen3",)
_DTYPES = {
    "float32": WeightDtype.FLOAT32,
    "bfloat16": WeightDtype.BFLOAT16,
    "float16": WeightDtype.FLOAT16,
}
# A Llama that names no base of its rotary positions has this one; all others name theirs.
THETA = {"llama": 10000.0}

MOST_CONTEXT = 1 << 24  # positions are float32, which tells no more of them apart
MOST_THETA = 1e15
MOST_EPS = 1.0

_USED = frozenset(
    """architectures model_type hidden_size intermediate_size num_hidden_layers vocab_size
    num_attention_heads num_key_value_heads head_dim max_position_embeddings rms_norm_eps
    rope_theta rope_scaling rope_parameters tie_word_embeddings layer_types sliding_window
    quantization_config dtype torch_dtype""".split()
)
# What else could be asked of the forward pass, and the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "partial_rotary_factor": (1,),
    "rope_interleaved": (False,),
    "num_experts": (0,),
    "pruned_heads": ({},),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,),
}
# Training, generation and book-keeping.
_HARMLESS = frozenset(
    """attention_dropout hidden_dropout embd_pdrop resid_pdrop initializer_range
    gradient_checkpointing pretraining_tp max_window_layers chunk_size_feed_forward
    neftune_noise_alpha transformers_version transformers.js_config tokenizer_class
    is_llama_config is_decoder use_cache use_bfloat16 torchscript tf_legacy_loss return_dict
    return_dict_in_generate output_attentions output_hidden_states output_scores id2label
    label2id num_labels problem_type finetuning_task task_specific_params prefix unsloth_fixed
    unsloth_version unsloth_tokenizer_class bos_token_id eos_token_id pad_token_id sep_token_id
    unk_token_id mask_token_id cls_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id suppress_tokens begin_suppress_tokens bad_words_ids max_length
    min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups
    diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences
    remove_invalid_values exponential_decay_length_penalty""".split()
)
_ROPE_USED = frozenset({"rope_type", "type", "rope_theta"})
_LLAMA3_USED = _ROPE_USED | {
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
}
# Parts of a model that are never stored in FP8, so that leaving them out says nothing.
_NEVER_FP8 = frozenset(
    """lm_head embed_tokens norm input_layernorm post_attention_layernorm q_norm k_norm""".split()
)


def spec_from_folder(folder: Path) -> ModelSpec:
    """The spec of a Hugging Face model folder: config.json and tokenizer.json.

    Raises:
        ModelError: a file is missing or unreadable, or the model is of no known kind.
    """
    path = folder / "config.json"
    config = read_json(path, f"{folder} is not a model folder.")
    bos = leading_token(read_tokenizer_json(folder / "tokenizer.json"))
    return spec_from_config(config, bos, path)


def spec_from_config(config: dict[str, Any], bos: int | None, path: Path) -> ModelSpec:
    """The spec that a parsed config.json describes.

    Args:
        bos: token that the tokenizer puts before every text, or None.

    Raises:
        ModelError: the architecture, or a part of it, is not supported, or a value is wrong.
    """
    fields = Fields(config, path)
    architecture = _architecture(fields)
    fields.known(_USED, _NEUTRAL, lambda key: key in _HARMLESS or key.startswith("_"))
    heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    context = fields.whole("max_position_embeddings", most=MOST_CONTEXT)
    layers = fields.whole("num_hidden_layers")
    theta, scaling = _rope(fields, architecture)
    _refuse_windows(fields, layers, context)
    return checked_spec(
        ModelSpec(
            architecture=architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.whole("num_key_value_heads", heads),
            d_head=fields.whole("head_dim", max(hidden // heads, 1)),
            ffn=fields.whole("intermediate_size"),
            vocab=fields.whole("vocab_size"),
            context=context,
            rope_theta=theta,
            rope_scaling=scaling,
            norm_eps=fields.real("rms_norm_eps", 1e-30, MOST_EPS),
            qk_norm=architecture in QK_NORM,
            tied_head=fields.flag("tie_word_embeddings", False),
            bos=bos,
            weight_dtype=_weight_dtype(fields),
        ),
        path,
    )


def checked_spec(spec: ModelSpec, path: Path) -> ModelSpec:
    """The spec itself where its numbers fit each other; ModelError where they do not."""
    if spec.d_head % 2:
        raise ModelError(
            f"{path}: heads of {spec.d_head} dimensions cannot be rotated, which takes pairs."
        )
    if spec.heads % spec.kv_heads:
        raise ModelError(
            f"{path}: {spec.heads} query heads cannot share {spec.kv_heads} key and value heads."
        )
    if spec.bos is not None and not 0 <= spec.bos < spec.vocab:
        raise ModelError(
            f"{path}: prompts begin with token {spec.bos}, and the vocabulary has {spec.vocab:,}."
            " The tokenizer and the weights do not belong together."
        )
    return spec


def read_tokenizer_json(path: Path) -> dict[str, Any]:
    """The parsed `tokenizer.json`; raises ModelError where there is none."""
    parsed = read_json(path, "Covey needs the tokenizer.json beside the weights.")
    if not isinstance(parsed.get("model"), dict):
        raise ModelError(f"{path} is not a tokenizer: it has no model part.")
    return parsed


def leading_token(spec: dict[str, Any]) -> int | None:
    """The token (BOS) that a parsed tokenizer.json puts before every text, and nothing else."""
    processor = spec.get("post_processor")
    if processor is None:
        return None
    try:
        steps = processor["processors"] if processor["type"] == "Sequence" else [processor]
        found = [token for step in steps if (token := _step_token(step)) is not None]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"The tokenizer's post_processor cannot be read: {error!r}. Covey knows"
            " TemplateProcessing that puts one token before a text, and ByteLevel."
        ) from error
    if len(found) > 1:
        raise ModelError("The tokenizer puts more than one token before every text.")
    return found[0] if found else None


def _step_token(step: dict[str, Any]) -> int | None:
    """The token that one step of a post-processor puts before a text."""
    if step["type"] == "ByteLevel":
        return None
    if step["type"] != "TemplateProcessing":
        raise ValueError(f"a step of type {step['type']!r}")
    *before, text = step["single"]
    if "Sequence" not in text or len(before) > 1:
        raise ValueError("more around a text than one token before it")
    if not before:
        return None
    (token,) = step["special_tokens"][before[0]["SpecialToken"]["id"]]["ids"]
    if type(token) is not int:
        raise ValueError(f"a token {token!r}")
    return token


def _architecture(fields: Fields) -> str:
    names = fields.items("architectures", str, ["none"])
    architecture = _ARCHITECTURES.get(names[0]) if len(names) == 1 else None
    if architecture is None:
        raise ModelError(
            f"{fields.path} names the architecture {', '.join(names) or 'none'}; Covey runs"
            f" {', '.join(_ARCHITECTURES)}."
        )
    if fields.text("model_type", architecture) != architecture:
        fields.refuse("model_type", f"a {names[0]} is of type {architecture}")
    return architecture


def _refuse_windows(fields: Fields, layers: int, context: int) -> None:
    """Refuse attention that does not reach back to the first token."""
    window = fields.get("sliding_window")
    switched_off = fields.get("use_sliding_window") is False
    if window is not None and not switched_off and fields.whole("sliding_window") < context:
        fields.unsupported("sliding_window")
    types = fields.items("layer_types", str, [])
    if types and (len(types) != layers or set(types) != {"full_attention"}):
        fields.unsupported("layer_types")


def _rope(fields: Fields, architecture: str) -> tuple[float, Llama3Rope | None]:
    """Base and stretching of the rotary positions, in either spelling of the field."""
    places = [part for key in ("rope_parameters", "rope_scaling") if (part := fields.part(key))]
    rope = places[0] if places else Fields({}, fields.path, "rope_parameters.")
    if len(places) == 2 and fields.get("rope_scaling") != fields.get("rope_parameters"):
        fields.refuse("rope_scaling", "rope_parameters say otherwise")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ("default", "llama3"):
        raise ModelError(
            f"{fields.path} stretches its positions by {kind!r}; Covey knows only 'llama3'."
            " Remove the scaling to run within the original context."
        )
    if rope.text("type", kind) != kind:
        rope.refuse("type", f"rope_type is {kind!r}")
    used = _LLAMA3_USED if kind == "llama3" else _ROPE_USED
    rope.known(used, {"partial_rotary_factor": (1,)}, lambda key: False)
    outer = [place for place in (rope, fields) if place.get("rope_theta") is not None]
    theta = (outer or [fields])[0].real("rope_theta", 1.0, MOST_THETA, THETA.get(architecture))
    if outer and outer[-1].get("rope_theta") != outer[0].get("rope_theta"):
        outer[-1].refuse("rope_theta", f"{rope.prefix}rope_theta is {theta:g}")
    return theta, _stretching(rope) if kind == "llama3" else None


def _stretching(rope: Fields) -> Llama3Rope:
    low = rope.real("low_freq_factor", 1e-6, 1e6)
    high = rope.real("high_freq_factor", 1e-6, 1e6)
    if not low < high:
        rope.refuse("high_freq_factor", f"more than the {low:g} of low_freq_factor is needed")
    return Llama3Rope(
        factor=rope.real("factor", 1.0, 1e6),
        low_factor=low,
        high_factor=high,
        original_context=rope.whole("original_max_position_embeddings", most=MOST_CONTEXT),
    )


def _weight_dtype(fields: Fields) -> WeightDtype:
    quantised = fields.part("quantization_config")
    if quantised is not None:
        return _block_fp8(quantised)
    key = "torch_dtype" if fields.get("dtype") is None else "dtype"
    name = fields.text(key, "float32")
    if name not in _DTYPES:
        raise ModelError(f"{fields.path}: weights of dtype {name!r} cannot be read.")
    return _DTYPES[name]


def _block_fp8(quantised: Fields) -> WeightDtype:
    method = quantised.text("quant_method")
    if method != "fp8" or quantised.get("weight_block_size") != [128, 128]:
        raise ModelError(
            f"{quantised.path}: weights quantised by {method!r} cannot be read."
            " Covey reads FP8 in blocks of 128x128, BF16, FP16 and FP32."
        )
    lists = ("modules_to_not_convert", "ignored_layers")
    neutral = {"activation_scheme": ("dynamic",), "fmt": ("e4m3",), "dequantize": (False,)}
    quantised.known({"quant_method", "weight_block_size", *lists}, neutral, lambda key: False)
    for key in lists:
        names = {name.rpartition(".")[2] for name in quantised.items(key, str, [])}
        if not names <= _NEVER_FP8:
            quantised.unsupported(key)
    return WeightDtype.FLOAT8
