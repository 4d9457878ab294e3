"""Packing prompts into chunks, against the definitions written out slowly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.engine.packing import PackedChunk, pack, sort_prompts
from covey.engine.session import minimum_tokens
from covey.prompts.tokens import Tokens

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=14)


def columns(prompts: list[list[int]]) -> Tokens:
    offsets = np.cumsum([0, *map(len, prompts)]).astype(np.int64)
    return Tokens(np.concatenate(prompts).astype(np.int32), offsets)


def path_tokens(packed: PackedChunk, row: int) -> list[int]:
    """The prompt that ends at a row: the tokens that the row sees."""
    exits = packed.chunk.exits
    return [int(packed.chunk.tokens[k]) for k in range(row + 1) if row < exits[k]]


@settings(max_examples=300, deadline=None)
@given(prompts=PROMPTS, budget=st.integers(1, 40))
def test_every_prompt_is_read_once_behind_exactly_its_tokens(
    prompts: list[list[int]], budget: int
) -> None:
    tokens = columns(prompts)
    order, shared = sort_prompts(tokens)
    read = []
    for packed in pack(tokens, order, shared, budget):
        chunk = packed.chunk
        assert len(chunk) <= max(budget, max(map(len, prompts)))
        for row in range(len(chunk)):
            assert chunk.depths[row] == len(path_tokens(packed, row)) - 1
        assert (np.diff(chunk.answers) > 0).all()
        for prompt, answer in zip(packed.prompts.tolist(), packed.answers.tolist(), strict=True):
            read.append(prompt)
            assert path_tokens(packed, int(chunk.answers[answer])) == prompts[prompt]
    assert sorted(read) == list(range(len(prompts)))


@settings(max_examples=200, deadline=None)
@given(prompts=PROMPTS)
def test_one_chunk_computes_every_distinct_prefix_once(prompts: list[list[int]]) -> None:
    tokens = columns(prompts)
    order, shared = sort_prompts(tokens)
    (packed,) = pack(tokens, order, shared, budget=10_000)
    prefixes = {tuple(p[:n]) for p in prompts for n in range(1, len(p) + 1)}
    assert len(packed.chunk) == len(prefixes) == minimum_tokens(tokens, shared)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4), min_size=1))
def test_order_is_by_token_ids_however_large(prompts: list[list[int]]) -> None:
    order, _ = sort_prompts(columns(prompts))
    found = [prompts[i] for i in order.tolist()]
    assert found == sorted(prompts)
