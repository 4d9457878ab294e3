"""SmolLM2 from its real file against transformers, which reads the same file itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey.engine.readout import answer_tokens, margins
from covey.kernels.base import AttentionConfig
from covey.kernels.reference import ReferenceKernels
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from effort import THOROUGH
from models.batches import prompts_batch, random_ids
from models.smollm2 import smollm2_path, transformers_smollm2
from models.tiny import plain_logits

LENGTHS = (1, 2, 33, 300, 2000 if THOROUGH else 600)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return transformers_smollm2()


@pytest.fixture(scope="module")
def ours() -> CausalLM[Any]:
    files = ModelFiles(smollm2_path())
    spec, cpu = files.spec, torch.device("cpu")
    geometry = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    weights = load_weights(spec, files.checkpoint(), cpu, torch.float32)
    return CausalLM(spec, weights, ReferenceKernels(geometry, cpu, torch.float32))


def test_spec_is_that_of_the_published_model() -> None:
    spec = ModelFiles(smollm2_path()).spec
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.ffn) == (30, 576, 9, 3, 1536)
    assert (spec.vocab, spec.context, spec.rope_theta, spec.bos) == (49152, 8192, 1e5, None)
    assert spec.tied_head and not spec.qk_norm


@pytest.mark.fuzz
def test_logits_and_margins_agree_alone_and_packed(theirs: Any, ours: CausalLM[Any]) -> None:
    answers = answer_tokens(ModelFiles(smollm2_path()).encoder)
    rows = torch.tensor(answers.true + answers.false)
    prompts = [random_ids(n, 49152, seed=n) for n in LENGTHS]
    packed = ours.logits(prompts_batch(prompts), None)
    for ids, together in zip(prompts, packed, strict=True):
        expected = plain_logits(theirs, ids)
        alone = ours.logits(prompts_batch([ids]), None)
        for found in (alone[0], together):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
            torch.testing.assert_close(
                margins(found[None, rows], len(answers.true)),
                margins(expected[None, rows], len(answers.true)),
                atol=1e-4,
                rtol=0,
            )


def test_embedding_and_head_are_one_tensor(ours: CausalLM[Any]) -> None:
    weights = ours._weights
    assert weights.head is weights.embedding
