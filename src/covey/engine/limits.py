"""What a session may use of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from covey.models.spec import ModelSpec
from covey.prompts.column import SPILL_BYTES

CPU_BATCHED_TOKENS = 1024  # new tokens a batch: its activations stay in the caches
# Of the keys and values on a CPU, whose system commits a page when it is first written:
# unused slots cost nothing.
CPU_KV_CACHE_BYTES = 1 << 30
# A GPU without so much beside the weights cannot run a model to any purpose.
GPU_LEAST_BYTES = 3 << 30

# Wider batches multiply at a better rate, but hardly from here on: on an H200 Qwen3 4B takes
# 8.17 us a token in batches of 32,768 and 8.07 in batches of 65,536.
_GPU_BATCHED_TOKENS = 65_536
_GPU_STEP = 1024
_ACTIVATION_SHARE = 0.1  # of what a GPU has free beside the weights
_GPU_RESERVE = 2 << 30  # for what the libraries take, and for fragments


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes a session works with.

    Attributes:
        context: longest prompt, in tokens.
        max_batched_tokens: new tokens of a batch.
        slots: tokens whose keys and values the KV cache holds.
        node_tokens: what a node of the prompt forest costs, in tokens of model work: a
            share that saves no more is given up (see `covey.prompts.forest.trie`). 0 gives
            up none: with SmolLM2 on a CPU, shares of 2 and 6 tokens among four documents
            took 3.4 and 3.6 s of one core with 0, and 3.5 to 3.6 and 3.5 to 4.0 s with 2
            to 16, so a node costs less than it saves, or nothing that can be measured.
        job_tokens: tokens of anchors that are sorted and laid out at a time.
        spill_bytes: size from which token columns lie in a temporary file.
        in_flight: batches under way at once.
    """

    context: int
    max_batched_tokens: int
    slots: int
    node_tokens: int = 0
    job_tokens: int = 64_000_000
    spill_bytes: int = SPILL_BYTES
    in_flight: int = 1


def gpu_limits(spec: ModelSpec, free: float) -> Limits:
    """The limits of a model on a GPU.

    Args:
        spec: the model; activations, keys and values are BF16.
        free: bytes that the GPU has beside the weights.
    """
    # Of the widest moment of a layer: the residual and what is added to it, queries, keys
    # and values, three outputs of dense attention and the one they end in, gate, up and
    # their product.
    widths = 2 * spec.hidden + 5 * spec.q_width + 2 * spec.kv_width + 3 * spec.ffn
    most = int(free * _ACTIVATION_SHARE / (2 * widths)) // _GPU_STEP * _GPU_STEP
    tokens = min(max(most, _GPU_STEP), _GPU_BATCHED_TOKENS)
    room = free - 2 * widths * tokens - _GPU_RESERVE
    slots = max(int(room // spec.kv_bytes_per_token()), 1)
    return Limits(spec.context, tokens, slots, in_flight=2)


def cpu_limits(spec: ModelSpec) -> Limits:
    """The limits of a model on a CPU, where keys and values are float32."""
    return Limits(
        spec.context, CPU_BATCHED_TOKENS, CPU_KV_CACHE_BYTES // spec.kv_bytes_per_token(4)
    )
