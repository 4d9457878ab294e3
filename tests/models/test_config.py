"""config.json: what is known is used, harmless or refused by name; nothing is ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covey.errors import ModelError
from covey.models.config import spec_from_config
from covey.models.file_reader import parse_json
from covey.models.spec import Llama3Rope, ModelSpec, WeightDtype

HERE = Path("config.json")

# As the hub holds them.
QWEN3 = """{
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
}"""
FP8 = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}
LLAMA = """{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
}"""
LLAMA2 = """{
  "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"],
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0.dev0",
  "use_cache": true, "vocab_size": 32000
}"""
SMOLLM2 = """{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
  "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
  "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
  "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152
}"""


def spec_of(text: str, **changes: Any) -> ModelSpec:
    config = {**parse_json(text.encode(), HERE), **changes}
    return spec_from_config({k: v for k, v in config.items() if v is not ...}, None, HERE)


def test_the_configurations_of_published_models_load() -> None:
    small = spec_of(QWEN3)
    assert (small.d_head, small.rope_theta, small.norm_eps) == (128, 1e6, 1e-6)
    assert small.qk_norm and small.tied_head and small.weight_dtype is WeightDtype.BFLOAT16
    skipped = {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"]}
    for quantised in (FP8, skipped):
        assert spec_of(QWEN3, quantization_config=quantised).weight_dtype is WeightDtype.FLOAT8
    assert spec_of(LLAMA).rope_scaling == Llama3Rope(32.0, 1.0, 4.0, 8192)
    assert spec_of(LLAMA2).rope_theta == 10000.0
    assert spec_of(SMOLLM2).d_head == 64


NUMBERS = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8", [8], {}, 2**40, float("inf")], ids=repr)
@pytest.mark.parametrize("key", NUMBERS)
def test_counts_are_positive_whole_numbers(key: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"holds {key} = .*; a positive number"):
        spec_of(QWEN3, **{key: value})


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize(
    "value", [0, -1e-6, float("nan"), float("inf"), 1e300, "x", True, [1.0], {}], ids=repr
)
def test_real_numbers_have_bounds(key: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"holds {key} = .*; a number from"):
        spec_of(QWEN3, **{key: value})


REQUIRED = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
]


@pytest.mark.parametrize("value", [None, ...])
@pytest.mark.parametrize("key", REQUIRED)
def test_nothing_is_made_up_for_what_is_missing(key: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"has no {key}, without which"):
        spec_of(QWEN3, **{key: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 4, "use_sliding_window": None},
        {"use_sliding_window": True, "sliding_window": 4096},
        {"use_sliding_window": True},
        {"layer_types": ["sliding_attention"] * 28},
        {"layer_types": ["full_attention"]},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"hidden_act": ["silu"]},
        {"partial_rotary_factor": 0.5},
        {"rope_interleaved": True},
        {"num_experts": 8},
        {"num_local_experts": 8},
        {"attn_logit_softcapping": 50.0},
        {"final_logit_softcapping": 30.0},
        {"logit_scale": 0.1},
        {"residual_multiplier": 0.2},
        {"attention_multiplier": 0.2},
        {"embedding_multiplier": 12},
        {"no_rope_layers": [1, 0]},
        {"clip_qkv": 8.0},
        {"auto_map": {"AutoModelForCausalLM": "modeling.Other"}},
        {"quantization": {"group_size": 64, "bits": 4}},
        {"something_new": 1},
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused_by_name(changes: dict[str, object]) -> None:
    name = next(iter(changes))
    with pytest.raises(ModelError, match=rf"sets {name} = .*, which Covey does not compute"):
        spec_of(QWEN3, **changes)


def test_windows_that_are_as_wide_as_the_context_or_switched_off_are_none() -> None:
    assert spec_of(QWEN3, sliding_window=40960, use_sliding_window=None) == spec_of(QWEN3)
    assert spec_of(QWEN3, sliding_window=4096, use_sliding_window=False) == spec_of(QWEN3)
    assert spec_of(QWEN3, layer_types=["full_attention"] * 28) == spec_of(QWEN3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope_scaling": "x"}, "rope_scaling = 'x'; an object"),
        ({"rope_scaling": [1]}, "an object is needed"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "positions by 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "positions by 'linear'"),
        ({"rope_scaling": {"rope_type": "llama3", "type": "x"}}, r"rope_scaling\.type = 'x'"),
        ({"rope_scaling": {"factor": 2.0}}, r"sets rope_scaling\.factor"),
        ({"rope_scaling": {"rope_type": 3}}, r"rope_scaling\.rope_type = 3; a text"),
        ({"rope_scaling": {"rope_type": "llama3"}}, r"has no rope_scaling\.low_freq_factor"),
        ({"rope_parameters": {"rope_theta": 5e5}}, "holds rope_theta = 1000000"),
        ({"rope_parameters": {"rope_theta": "x"}}, r"rope_parameters\.rope_theta = 'x'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
        (
            {"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_type": "default"}},
            "rope_parameters say otherwise",
        ),
        ({"quantization_config": "fp8"}, "an object is needed"),
        ({"quantization_config": {"quant_method": 8}}, r"quant_method = 8; a text"),
        ({"quantization_config": {**FP8, "weight_block_size": [64, 64]}}, "quantised by 'fp8'"),
        ({"quantization_config": {**FP8, "activation_scheme": "static"}}, "activation_scheme"),
        ({"quantization_config": {**FP8, "ignored_layers": ["a.mlp.up_proj"]}}, "ignored_layers"),
        ({"quantization_config": {**FP8, "bits": 4}}, r"quantization_config\.bits = 4"),
        ({"architectures": "Qwen3ForCausalLM"}, "architectures = .*; a list"),
        ({"architectures": []}, "names the architecture none"),
        ({"architectures": [3]}, "a list of str is needed"),
        ({"model_type": "llama"}, "model_type = 'llama'"),
        ({"tie_word_embeddings": "yes"}, "true or false is needed"),
        ({"torch_dtype": 16}, "torch_dtype = 16; a text"),
        ({"head_dim": 127}, "heads of 127 dimensions cannot be rotated"),
        ({"num_key_value_heads": 5}, "16 query heads cannot share 5"),
    ],
    ids=str,
)
def test_wrong_values_are_named(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        spec_of(QWEN3, **changes)


@pytest.mark.parametrize(
    ("change", "value", "name"),
    [
        ("low_freq_factor", 4.0, "high_freq_factor"),
        ("factor", 0, "factor"),
        ("factor", float("nan"), "factor"),
        ("original_max_position_embeddings", 0, "original_max_position_embeddings"),
        ("attention_factor", 2.0, "attention_factor"),
    ],
)
def test_a_stretching_has_bounds(change: str, value: object, name: str) -> None:
    scaling = {**json.loads(LLAMA)["rope_scaling"], change: value}
    with pytest.raises(ModelError, match=rf"rope_scaling\.{name} = "):
        spec_of(LLAMA, rope_scaling=scaling)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nests too deeply"),
        ('{"a":' * 100_000, "nests too deeply"),
        ("[]", "no JSON object"),
        ("{", "cannot be read"),
        ("", "cannot be read"),
        ('{"a": 1, "a": 2}', "says 'a' twice"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": ' + "1" * 5000 + "}", "cannot be read"),
        ("\ufeff{}", "cannot be read"),
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_sound_json_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=rf"config\.json cannot be read.*{reason}|{reason}"):
        parse_json(text.encode(), HERE)


def test_json_is_utf8() -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        parse_json('{"a": 1}'.encode("utf-16"), HERE)
