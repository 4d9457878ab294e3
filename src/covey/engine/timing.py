"""Measure how fast a loaded model runs batches on this device.

Three batches are timed: a small and a large one of prompts, and one of them again behind a
long context. A pass takes `pass + tokens·token + pairs·pair` seconds (`estimate.rates`), and
three times give the three unknowns. Most work runs in full batches, so that the large one is
as near to a full one as its time allows: two cores take 1.6 ms a token of SmolLM2 in batches
of 256 and 1.35 in batches of 1,024.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from covey.engine.model_runner import Launched, ModelRunner
from covey.estimate.rates import Rates
from covey.kernels.base import ForwardBatch

# Tokens of a prompt: many documents are about so long. Attention takes more for a pair where
# keys are few, and a line through some hundreds and some thousands is right for both.
PROMPT = 256
# Slots that the batch with a context reads: the work in which attention counts has many.
CONTEXT = 1024
GPU_CONTEXT = 4096
# The small batch is this part of a full one.
SMALL_PART = 16
# The large batch of a processor is as large as is expected, by the small one, to take so long,
# in seconds; a GPU's is a full one.
LARGE_SECONDS = 2.0
# Times by measured rates were found to be off by so much; see bench/estimates.py.
SPREAD = 1.3


@dataclass(frozen=True, slots=True)
class Timing:
    """One batch's tokens, its (query, key) pairs, and the seconds it took."""

    tokens: int
    pairs: int
    seconds: float


def measure_rates(
    runner: ModelRunner, max_batched_tokens: int, slots: int, threads: int | None
) -> Rates:
    """Time a few batches; on two quiet cores and SmolLM2 this takes two seconds.

    Args:
        runner: runs them; what its KV cache holds is lost.
        max_batched_tokens: tokens of a full batch.
        slots: slots of its KV cache.
        threads: of the processor that computes; None where a device of its own does.
    """
    small = max(max_batched_tokens // SMALL_PART, 1)
    if threads is None:
        return _measure_gpu(runner, small, max(max_batched_tokens, 2 * small), slots)
    return _measure_processor(runner, small, max_batched_tokens, slots, threads)


def _measure_processor(
    runner: ModelRunner, small: int, max_batched_tokens: int, slots: int, threads: int
) -> Rates:
    """Time each batch when the one before it is done.

    A processor's time is what its threads worked, which other programs do not add to. They
    do slow down the memory and wake threads late, so of two short times the shorter counts.
    """

    def timed(batch: ForwardBatch) -> Timing:
        worked = time.process_time()
        _, seconds = runner.launch(batch).result()
        return _timing(batch, min(seconds, (time.process_time() - worked) / threads))

    short = make_batch(small)
    timed(short)  # starts threads and touches the weights
    first = _shorter(timed(short), timed(short))
    most = small * max(int(LARGE_SECONDS / max(first.seconds, 1e-9)), 2)
    large = max(min(max_batched_tokens, most), 2 * small)
    context = min(CONTEXT, large, slots)
    full = timed(make_batch(large, kept=context))
    behind = make_batch(small, context)
    return fit(first, full, _shorter(timed(behind), timed(behind)))


def _measure_gpu(runner: ModelRunner, small: int, large: int, slots: int) -> Rates:
    """Time batches as a session runs them, each launched before the one in front of it is done.

    Of each kind the last counts: the first compiles what it is the first to need, and while
    it does the GPU idles. The large ones come last, when the clock has fallen to what the
    card sustains; they are as long behind a context as without, since launching takes about
    as long as a small batch.
    """
    context = min(GPU_CONTEXT, large, slots)
    short, full = make_batch(small), make_batch(large, kept=context)
    behind = make_batch(large, context)
    batches = [short, short, short, full, behind, behind, full]
    seconds: list[float] = []
    under_way: deque[Launched] = deque()
    for batch in batches:
        under_way.append(runner.launch(batch))
        if len(under_way) > 1:
            seconds.append(under_way.popleft().result()[1])
    seconds += [launched.result()[1] for launched in under_way]
    return fit(_timing(short, seconds[2]), _timing(full, seconds[6]), _timing(behind, seconds[5]))


def _shorter(one: Timing, other: Timing) -> Timing:
    return min(one, other, key=lambda timing: timing.seconds)


def _timing(batch: ForwardBatch, seconds: float) -> Timing:
    rows = np.arange(len(batch))
    pairs = int((batch.subtree_ends - rows).sum())
    pairs += int((np.diff(batch.prefix_rows) * np.diff(batch.prefix_slots)).sum())
    return Timing(len(batch), pairs, seconds)


def make_batch(tokens: int, context: int = 0, kept: int = 0) -> ForwardBatch:
    """A batch of prompts of `PROMPT` tokens, the last one shorter where they do not divide.

    Args:
        tokens: of the batch.
        context: slots, from 0 on, that every row sees.
        kept: rows, from 0 on, that are stored in the slots of their numbers.
    """
    rows = np.arange(tokens)
    place = rows % PROMPT
    subtree_ends = np.minimum(rows - place + PROMPT, tokens)
    prefix = np.array([[0, tokens]] if context else np.empty((0, 2)), dtype=np.int64)
    slots = np.array([[0, context]] if context else np.empty((0, 2)), dtype=np.int64)
    return ForwardBatch(
        tokens=(rows % 97).astype(np.int32),
        positions=(context + place).astype(np.int32),
        subtree_ends=subtree_ends.astype(np.int32),
        logits_indices=np.flatnonzero(subtree_ends == rows + 1),
        prefix_rows=prefix,
        prefix_slots=slots,
        slot_mapping=np.where(rows < kept, rows, -1).astype(np.int32),
    )


def fit(small: Timing, large: Timing, behind: Timing) -> Rates:
    """The rates that explain three times; none is below 0, whatever noise there was.

    Args:
        small, large: of batches without a context.
        behind: of a batch as small or as large, with one.
    """
    same = small if behind.tokens == small.tokens else large
    per_pair = max(behind.seconds - same.seconds, 0.0) / (behind.pairs - same.pairs)
    # Attention is a small part of the batches without a context; noise could say that it is all.
    for timing in (small, large):
        per_pair = min(per_pair, timing.seconds / max(2 * timing.pairs, 1))
    # What is left of the two others without their own few pairs.
    low = max(small.seconds - small.pairs * per_pair, 0.0)
    high = max(large.seconds - large.pairs * per_pair, 0.0)
    per_token = max(high - low, 0.0) / (large.tokens - small.tokens)
    # A pass cannot cost less than nothing: then all is the tokens'.
    per_token = min(per_token, high / large.tokens) or high / large.tokens
    per_pass = max(high - large.tokens * per_token, 0.0)
    return Rates(per_pass, per_token, per_pair, SPREAD)
