"""What a session may use of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from covey.prompts.column import SPILL_BYTES

CPU_BUDGET = 1024  # new tokens a chunk: its activations stay in the caches
GPU_BUDGET = 16384
# Of the keys and values on a CPU, whose system commits a page when it is first written:
# unused slots cost nothing.
CPU_ARENA_BYTES = 1 << 30
# Of what a GPU has free beside the weights; the rest is for activations.
GPU_ARENA_SHARE = 0.85
GPU_RESERVE = 4 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes a session works with.

    Attributes:
        context: longest prompt, in tokens.
        budget: new tokens of a chunk.
        slots: tokens whose keys and values the arena holds.
        node_tokens: what a node of the prompt forest costs, in tokens of model work: a
            share that saves no more is given up (see `covey.prompts.forest.flatten`). 0 gives
            up none: with SmolLM2 on a CPU, shares of 2 and 6 tokens among four documents
            took 3.4 and 3.6 s of one core with 0, and 3.5 to 3.6 and 3.5 to 4.0 s with 2
            to 16, so a node costs less than it saves, or nothing that can be measured.
        job_tokens: tokens of anchors that are sorted and laid out at a time.
        spill_bytes: size from which token columns lie in a temporary file.
        in_flight: chunks under way at once.
    """

    context: int
    budget: int
    slots: int
    node_tokens: int = 0
    job_tokens: int = 64_000_000
    spill_bytes: int = SPILL_BYTES
    in_flight: int = 1
