"""Measure how fast a loaded model runs chunks on this device.

Three chunks are timed: a small and a large one of short prompts, and one of them again behind
a long context. A pass takes `pass + tokens·token + pairs·pair` seconds (`hardware.rates`), and
three times give the three unknowns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from covey.engine.runtime import ChunkRunner
from covey.hardware.rates import Rates
from covey.kernels.base import Chunk

# Tokens of a prompt in the chunks of short prompts.
PROMPT = 32
# Slots that the chunk with a context reads. A GPU attends to many keys at a better rate than to
# few, and the work in which attention counts is the one with many.
CONTEXT = 1024
GPU_CONTEXT = 4096
# The small chunk is this part of a full one.
SMALL_PART = 16
# The large chunk is as large as is expected to take so long, in seconds: a full one on a GPU,
# less on a processor.
LARGE_SECONDS = 0.6
# Times by measured rates were found to be off by so much; see bench/estimates.py.
SPREAD = 1.3


@dataclass(frozen=True, slots=True)
class Timing:
    """One chunk's tokens, its (query, key) pairs, and the seconds it took."""

    tokens: int
    pairs: int
    seconds: float


def measure_rates(runner: ChunkRunner, budget: int, slots: int, threads: int | None) -> Rates:
    """Time a few chunks; on two quiet cores and SmolLM2 this takes less than two seconds.

    Args:
        runner: runs them.
        budget: tokens of a full chunk.
        slots: slots of its arena.
        threads: of the processor that computes; None where a device of its own does.
    """

    def timed(tokens: int, context: int = 0) -> Timing:
        return time_chunk(runner, tokens, context, threads)

    small = max(budget // SMALL_PART // PROMPT, 1) * PROMPT
    # The first chunk starts threads, touches the weights and compiles what must be.
    timed(small)
    first = timed(small)
    most = small * max(int(LARGE_SECONDS / max(first.seconds, 1e-9)), 2)
    large = max(min(budget, most) // PROMPT, 2) * PROMPT
    if threads is not None:
        return fit(first, timed(large), timed(small, min(CONTEXT, slots)))
    # Launching takes as long as a small chunk on a GPU; other shapes may be compiled first.
    context = min(GPU_CONTEXT, slots)
    timed(large)
    timed(large, context)
    return fit(first, timed(large), timed(large, context))


def time_chunk(runner: ChunkRunner, tokens: int, context: int, threads: int | None) -> Timing:
    """Run one chunk of short prompts, each behind `context` slots of the arena.

    A processor's time is what its threads worked, which other programs do not add to.
    """
    chunk = make_chunk(tokens, context)
    worked = time.process_time()
    _, seconds = runner.launch(chunk).result()
    if threads is not None:
        seconds = min(seconds, (time.process_time() - worked) / threads)
    prompts = tokens // PROMPT
    pairs = tokens * context + prompts * PROMPT * (PROMPT + 1) // 2
    return Timing(tokens, pairs, seconds)


def make_chunk(tokens: int, context: int) -> Chunk:
    """A chunk of prompts of `PROMPT` tokens; nothing of it is kept.

    Args:
        tokens: a multiple of `PROMPT`.
        context: slots, from 0 on, that every row sees; what lies there does not matter.
    """
    rows = np.arange(tokens)
    place = rows % PROMPT
    exits = rows - place + PROMPT
    past = np.array([[0, tokens]] if context else np.empty((0, 2)), dtype=np.int64)
    slots = np.array([[0, context]] if context else np.empty((0, 2)), dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    return Chunk(
        tokens=(rows % 97).astype(np.int32),
        depths=(context + place).astype(np.int32),
        exits=exits.astype(np.int32),
        answers=np.flatnonzero(place == PROMPT - 1),
        past_rows=past,
        past_slots=slots,
        kept_rows=nothing,
        kept_slots=nothing,
    )


def fit(small: Timing, large: Timing, behind: Timing) -> Rates:
    """The rates that explain three times; none is below 0, whatever noise there was.

    Args:
        small, large: of chunks without a context.
        behind: of a chunk as small or as large, with one.
    """
    same = small if behind.tokens == small.tokens else large
    per_pair = max(behind.seconds - same.seconds, 0.0) / (behind.pairs - same.pairs)
    # What is left of the two others without their own few pairs.
    low = max(small.seconds - small.pairs * per_pair, 0.0)
    high = max(large.seconds - large.pairs * per_pair, 0.0)
    per_token = max(high - low, 0.0) / (large.tokens - small.tokens)
    # A pass cannot cost less than nothing: then all is the tokens'.
    per_token = min(per_token, high / large.tokens) or high / large.tokens
    per_pass = max(high - large.tokens * per_token, 0.0)
    return Rates(per_pass, per_token, per_pair, SPREAD)
