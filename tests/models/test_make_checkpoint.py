"""The random checkpoints of the measurements load as the hub's do, in both dtypes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.engine.readout import answer_tokens
from covey.kernels.base import AttentionConfig
from covey.kernels.reference import ReferenceKernels
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from covey.models.spec import WeightDtype
from models.batches import prompts_batch, random_ids

CPU = torch.device("cpu")
SCRIPT = Path(__file__).parents[2] / "bench" / "make_checkpoint.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_checkpoint", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_checkpoint"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


def logits(folder: Path) -> torch.Tensor:
    files = ModelFiles(folder)
    spec = files.spec
    weights = load_weights(spec, files.checkpoint(), CPU, torch.float32)
    shape = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    model = CausalLM(spec, weights, ReferenceKernels(shape, CPU, torch.float32))
    return model.logits(prompts_batch([random_ids(20, spec.vocab, 4)]), None)[0]


def test_fp8_and_bf16_hold_the_same_model_up_to_rounding(script: Any, tmp_path: Path) -> None:
    shape = script.Shape(2, 256, 4, 384, kv_heads=2, vocab=5000)
    for name, fp8 in (("fp8", True), ("bf16", False)):
        script.write_checkpoint(tmp_path / name, shape, fp8=fp8, seed=3, device=CPU)
    kinds = [ModelFiles(tmp_path / name).spec.weight_dtype for name in ("fp8", "bf16")]
    assert kinds == [WeightDtype.FLOAT8, WeightDtype.BFLOAT16]
    answers = answer_tokens(ModelFiles(tmp_path / "fp8").encoder)
    assert answers.true and answers.false
    rounded, exact = logits(tmp_path / "fp8"), logits(tmp_path / "bf16")
    assert exact.isfinite().all() and 1e-4 < (rounded - exact).norm() / exact.norm() < 0.2


def test_large_checkpoints_are_cut_into_shards(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "_SHARD_BYTES", 300_000)
    shape = script.Shape(1, 256, 2, 256, kv_heads=1, vocab=600)
    script.write_checkpoint(tmp_path, shape, fp8=True, seed=3, device=CPU)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert logits(tmp_path).isfinite().all()
