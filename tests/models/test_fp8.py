"""FP8 checkpoints: block scales are read, stacked and applied as the format says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from covey.errors import ModelError
from covey.kernels.base import AttentionConfig
from covey.kernels.reference import ReferenceKernels
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from covey.models.spec import WeightDtype
from models.batches import prompts_batch, random_ids
from models.tiny import VOCAB, make_model, plain_logits, write_folder

SCALES = ".weight_scale_inv"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Any, Path]:
    """A folder of FP8 weights, and a transformers model that holds what they stand for."""
    shape = {"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 384}
    theirs = make_model("qwen3", tied=True, hidden_size=256, **shape)
    folder = write_folder(tmp_path / "fp8", theirs)
    path = folder / "model.safetensors"
    stored, widened = {}, {}
    for name, weight in load_file(path).items():
        stored[name] = weight
        if "_proj" in name:
            rows, columns = weight.shape
            blocks = weight.view(rows // 128, 128, columns // 128, 128)
            scales = blocks.abs().amax((1, 3)) / 448
            packed = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
            stored[name] = packed.view(rows, columns)
            stored[name.replace(".weight", SCALES)] = scales
            widened[name] = (packed.float() * scales[:, None, :, None]).view(rows, columns)
    save_file(stored, path)
    theirs.load_state_dict(widened, strict=False)
    config = folder / "config.json"
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    settings = {**json.loads(config.read_text()), "quantization_config": quantised}
    config.write_text(json.dumps(settings))
    return theirs, folder


def load_ours(folder: Path, *, quantised: bool) -> CausalLM[Any]:
    files = ModelFiles(folder)
    spec, cpu = files.spec, torch.device("cpu")
    geometry = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    weights = load_weights(spec, files.checkpoint(), cpu, torch.float32)
    return CausalLM(spec, weights, ReferenceKernels(geometry, cpu, torch.float32, quantised))


def test_unrounded_inputs_give_the_logits_of_the_widened_weights(pair: Any) -> None:
    theirs, folder = pair
    assert ModelFiles(folder).spec.weight_dtype is WeightDtype.FLOAT8
    ours = load_ours(folder, quantised=False)
    for length in (1, 40):
        ids = random_ids(length, VOCAB, seed=length)
        found = ours.logits(prompts_batch([ids]), None)[0]
        torch.testing.assert_close(found, plain_logits(theirs, ids), atol=1e-4, rtol=0)


def test_rounded_inputs_stay_near_them(pair: Any) -> None:
    theirs, folder = pair
    ids = random_ids(40, VOCAB, seed=40)
    found = load_ours(folder, quantised=True).logits(prompts_batch([ids]), None)[0]
    expected = plain_logits(theirs, ids)
    # e4m3 keeps three mantissa bits: a few percent an input, averaged over each product.
    assert 1e-4 < (found - expected).norm() / expected.norm() < 0.2


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_missing_or_wrong_scales_name_the_tensor(pair: Any, change: str) -> None:
    _, folder = pair
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    name = "model.layers.2.mlp.down_proj" + SCALES
    scales = tensors.pop(name)
    if change == "shape":
        tensors[name] = scales[:1]
    save_file(tensors, path)
    with pytest.raises(ModelError, match=name):
        load_ours(folder, quantised=True)
