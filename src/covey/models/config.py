"""From a checkpoint's own description to a `ModelSpec`; no torch here.

A new architecture that is a dense decoder enters its name in `_HUGGING_FACE` and
`_GGUF`; one that computes something else also gets a module beside `models.dense`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from covey.errors import ModelError
from covey.models.gguf import GgufFile
from covey.models.spec import Llama3Rope, ModelSpec, WeightDtype

_HUGGING_FACE = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}
_GGUF = ("llama", "qwen3")
_QK_NORM = ("qwen3",)
_DTYPES = {
    "float32": WeightDtype.FLOAT32,
    "bfloat16": WeightDtype.BFLOAT16,
    "float16": WeightDtype.FLOAT16,
}


def spec_from_folder(folder: Path) -> ModelSpec:
    """The spec of a Hugging Face model folder: config.json and tokenizer.json.

    Raises:
        ModelError: a file is missing or unreadable, or the model is of no known kind.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; {folder} is not a model folder.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Fetch the file again.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a model configuration.")
    bos = leading_token(read_tokenizer_json(folder / "tokenizer.json"))
    return spec_from_config(config, bos, path)


def spec_from_config(config: dict[str, Any], bos: int | None, path: Path) -> ModelSpec:
    """The spec that a parsed config.json describes.

    Args:
        config: the parsed file.
        bos: token that the tokenizer puts before every text, or None.
        path: the file, for messages.

    Raises:
        ModelError: the architecture, or a part of it, is not supported.
    """
    names = config.get("architectures") or ["none"]
    architecture = _HUGGING_FACE.get(names[0])
    if architecture is None:
        raise ModelError(
            f"{path} names the architecture {names[0]}; Covey runs {', '.join(_HUGGING_FACE)}."
        )
    _refuse_unsupported(config, path)
    heads = _number(config, "num_attention_heads", path)
    hidden = _number(config, "hidden_size", path)
    theta, scaling = _rope(config, path)
    return ModelSpec(
        architecture=architecture,
        layers=_number(config, "num_hidden_layers", path),
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        d_head=config.get("head_dim") or hidden // heads,
        ffn=_number(config, "intermediate_size", path),
        vocab=_number(config, "vocab_size", path),
        context=_number(config, "max_position_embeddings", path),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        qk_norm=architecture in _QK_NORM,
        tied_head=bool(config.get("tie_word_embeddings", False)),
        bos=bos,
        weight_dtype=_weight_dtype(config, path),
    )


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """The spec that a GGUF file's metadata describes.

    Raises:
        ModelError: a key is missing or the architecture is not supported.
    """
    architecture = file.get("general.architecture", str)
    if architecture not in _GGUF:
        raise ModelError(
            f"{file.path} is of architecture {architecture}; Covey runs {', '.join(_GGUF)}."
        )
    for scaled in (f"{architecture}.rope.scaling.type", "rope_freqs.weight"):
        if file.metadata.get(scaled, "none") != "none" or scaled in file.tensors:
            raise ModelError(
                f"{file.path} stretches its positions ({scaled}), which Covey reads from"
                " safetensors only. Use the model's safetensors folder."
            )
    heads = file.get(f"{architecture}.attention.head_count", int)
    hidden = file.get(f"{architecture}.embedding_length", int)
    adds_bos = file.get("tokenizer.ggml.add_bos_token", bool, False)
    return ModelSpec(
        architecture=architecture,
        layers=file.get(f"{architecture}.block_count", int),
        hidden=hidden,
        heads=heads,
        kv_heads=file.get(f"{architecture}.attention.head_count_kv", int, heads),
        d_head=file.get(f"{architecture}.attention.key_length", int, hidden // heads),
        ffn=file.get(f"{architecture}.feed_forward_length", int),
        vocab=len(file.get("tokenizer.ggml.tokens", list)),
        context=file.get(f"{architecture}.context_length", int),
        rope_theta=file.get(f"{architecture}.rope.freq_base", float, 10000.0),
        rope_scaling=None,
        norm_eps=file.get(f"{architecture}.attention.layer_norm_rms_epsilon", float),
        qk_norm=architecture in _QK_NORM,
        tied_head="output.weight" not in file.tensors,
        bos=file.get("tokenizer.ggml.bos_token_id", int) if adds_bos else None,
        weight_dtype=WeightDtype.FLOAT32,
    )


def read_tokenizer_json(path: Path) -> dict[str, Any]:
    """The parsed `tokenizer.json`; raises ModelError where there is none."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{path} is missing. Covey needs the tokenizer.json beside the weights."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Fetch the file again.") from error
    if not isinstance(parsed, dict) or "model" not in parsed:
        raise ModelError(f"{path} is not a tokenizer: it has no model part.")
    return parsed


def leading_token(spec: dict[str, Any]) -> int | None:
    """The token that a parsed tokenizer.json puts before every text (BOS), or None."""
    processor = spec.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        if step.get("type") != "TemplateProcessing" or not step.get("single"):
            continue
        name = step["single"][0].get("SpecialToken", {}).get("id")
        if name is not None:
            return int(step["special_tokens"][name]["ids"][0])
    return None


def _number(config: dict[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"{path} holds {key} = {value!r}; a positive number is needed.")
    return value


def _refuse_unsupported(config: dict[str, Any], path: Path) -> None:
    wrong = [
        key
        for key in ("attention_bias", "mlp_bias", "use_sliding_window", "num_experts")
        if config.get(key)
    ]
    if config.get("hidden_act", "silu") != "silu":
        wrong.append("hidden_act")
    if wrong:
        raise ModelError(
            f"{path} sets {wrong[0]} = {config[wrong[0]]!r}, which Covey does not compute."
            " Choose another model."
        )


def _rope(config: dict[str, Any], path: Path) -> tuple[float, Llama3Rope | None]:
    """Base and stretching of the rotary positions, in either spelling of the field."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ModelError(
            f"{path} stretches its positions by {kind!r}; Covey knows only 'llama3'."
            " Remove the scaling to run within the original context."
        )
    return theta, Llama3Rope(
        factor=float(rope["factor"]),
        low_factor=float(rope["low_freq_factor"]),
        high_factor=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )


def _weight_dtype(config: dict[str, Any], path: Path) -> WeightDtype:
    quantised = config.get("quantization_config")
    if quantised:
        if quantised.get("quant_method") == "fp8" and quantised.get("weight_block_size") == [
            128,
            128,
        ]:
            return WeightDtype.FLOAT8
        raise ModelError(
            f"{path}: weights quantised by {quantised.get('quant_method')!r} cannot be read."
            " Covey reads FP8 in blocks of 128x128, BF16, FP16 and FP32."
        )
    name = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if name not in _DTYPES:
        raise ModelError(f"{path}: weights of dtype {name!r} cannot be read.")
    return _DTYPES[name]
