"""The dense decoder against transformers, an implementation nobody here wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.kernels.base import AttentionConfig, ForwardBatch
from covey.kernels.reference import ReferenceKernels
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from models.batches import make_kv_cache, prompts_batch, random_ids, tree_batches
from models.tiny import CONTEXT, VOCAB, make_model, plain_logits, write_folder

LENGTHS = (1, 2, 3, 31, 64, 65, 257, 700, 2000)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS = {
    "llama-tied": ("llama", {"tied": True}),
    "llama-untied": ("llama", {"tied": False}),
    "llama-stretched": ("llama", {"tied": True, "rope_parameters": LLAMA3_ROPE}),
    "llama-no-grouping": ("llama", {"tied": True, "num_key_value_heads": 4}),
    "qwen3-tied": ("qwen3", {"tied": True}),
    "qwen3-untied": ("qwen3", {"tied": False}),
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A transformers model and Covey's, read from the files that transformers wrote."""
    architecture, changes = KINDS[request.param]
    theirs = make_model(architecture, **changes)
    return theirs, load_ours(write_folder(tmp_path_factory.mktemp(request.param), theirs))


def load_ours(folder: Path) -> CausalLM[Any]:
    files = ModelFiles(folder)
    spec, cpu = files.spec, torch.device("cpu")
    geometry = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    weights = load_weights(spec, files.checkpoint(), cpu, torch.float32)
    return CausalLM(spec, weights, ReferenceKernels(geometry, cpu, torch.float32))


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_a_prompt_alone_gives_the_logits_of_transformers(pair: Any) -> None:
    theirs, ours = pair
    for length in LENGTHS:
        ids = random_ids(length, VOCAB, seed=length)
        assert_close(ours.logits(prompts_batch([ids]), None)[0], plain_logits(theirs, ids))


def test_prompts_packed_side_by_side_do_not_see_each_other(pair: Any) -> None:
    theirs, ours = pair
    prompts = [random_ids(n, VOCAB, seed=n) for n in (65, 1, 300, 2, 31, 64)]
    found = ours.logits(prompts_batch(prompts), None)
    for logits, ids in zip(found, prompts, strict=True):
        assert_close(logits, plain_logits(theirs, ids))


def test_prompts_that_share_prefixes_in_a_tree_keep_their_logits(pair: Any) -> None:
    theirs, ours = pair
    prompts = branching_prompts(seed=3, count=24)
    expected = [plain_logits(theirs, ids) for ids in prompts]
    for size in (3, len(prompts)):
        for batch, answers in tree_batches(prompts, size):
            found = ours.logits(batch, None)
            for prompt, answer in answers:
                assert_close(found[answer], expected[prompt])


def test_keys_and_values_from_the_kv_cache_serve_as_the_prefix_itself(pair: Any) -> None:
    theirs, ours = pair
    stem, first, second = (random_ids(n, VOCAB, seed=n) for n in (300, 20, 33))
    kv_cache = make_kv_cache(ours.spec, slots=1000)
    stem_slots = np.arange(500, 800)
    ours.logits(keep_all(prompts_batch([stem]), stem_slots), None, kv_cache)
    both = prompts_batch([first, second])
    reading = ForwardBatch(
        tokens=both.tokens,
        positions=both.positions + 300,
        subtree_ends=both.subtree_ends,
        logits_indices=both.logits_indices,
        prefix_rows=np.array([[0, 53]]),
        prefix_slots=np.array([[500, 800]]),
        slot_mapping=np.concatenate([np.full(20, -1), np.arange(100, 120), np.full(13, -1)]),
    )
    found = ours.logits(reading, None, kv_cache)
    assert_close(found[0], plain_logits(theirs, stem + first))
    assert_close(found[1], plain_logits(theirs, stem + second))
    # The second prompt was cut after 20 tokens: its last 13 read two spans.
    tail = prompts_batch([second[20:]])
    last = ForwardBatch(
        tokens=tail.tokens,
        positions=tail.positions + 320,
        subtree_ends=tail.subtree_ends,
        logits_indices=tail.logits_indices,
        prefix_rows=np.array([[0, 13], [0, 13]]),
        prefix_slots=np.array([[500, 800], [100, 120]]),
        slot_mapping=np.full(13, -1),
    )
    assert_close(ours.logits(last, None, kv_cache)[0], plain_logits(theirs, stem + second))


def test_a_batch_without_answers_only_fills_the_kv_cache(pair: Any) -> None:
    theirs, ours = pair
    ids = random_ids(40, VOCAB, seed=40)
    kv_cache = make_kv_cache(ours.spec, slots=40)
    filling = keep_all(prompts_batch([ids[:-1]]), np.arange(39))
    silent = ForwardBatch(**{**fields(filling), "logits_indices": np.arange(0)})
    assert ours.logits(silent, None, kv_cache).shape == (0, VOCAB)
    reading = ForwardBatch(
        **{
            **fields(prompts_batch([ids[-1:]])),
            "positions": np.array([39], dtype=np.int32),
            "prefix_rows": np.array([[0, 1]]),
            "prefix_slots": np.array([[0, 39]]),
        }
    )
    assert_close(ours.logits(reading, None, kv_cache)[0], plain_logits(theirs, ids))


def test_chosen_head_rows_are_those_rows_of_all_logits(pair: Any) -> None:
    _, ours = pair
    batch = prompts_batch([random_ids(9, VOCAB, seed=9)])
    rows = torch.tensor([5, 400, 17])
    torch.testing.assert_close(
        ours.logits(batch, rows), ours.logits(batch, None)[:, rows], atol=1e-5, rtol=0
    )


def test_the_same_batch_gives_the_same_bits(pair: Any) -> None:
    _, ours = pair
    batch = prompts_batch([random_ids(n, VOCAB, seed=n) for n in (65, 300)])
    assert torch.equal(ours.logits(batch, None), ours.logits(batch, None))


def test_spec_counts_what_the_checkpoint_holds(pair: Any) -> None:
    theirs, ours = pair
    matrices = [p for p in theirs.parameters() if p.dim() == 2]
    assert ours.spec.parameters == sum(p.numel() for p in matrices)
    assert ours.spec.context == CONTEXT
    shape = ours.spec.layers * 2 * ours.spec.kv_heads * ours.spec.d_head
    assert ours.spec.kv_bytes_per_token() == 2 * shape


def fields(batch: ForwardBatch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in ForwardBatch.__slots__}


def keep_all(batch: ForwardBatch, slots: Any) -> ForwardBatch:
    return ForwardBatch(**{**fields(batch), "slot_mapping": slots})


def branching_prompts(seed: int, count: int) -> list[list[int]]:
    """Prompts that grow from each other: shared beginnings, prefixes of others, duplicates."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCAB, 90).tolist()]
    while len(prompts) < count:
        parent = prompts[rng.integers(len(prompts))]
        kept = int(rng.integers(0, len(parent) + 1))
        added = rng.integers(0, VOCAB, int(rng.integers(0, 40))).tolist()
        prompts.append(parent[:kept] + added or [1])
    return prompts
