"""Compile a checkpoint's FP8 products for vLLM and quail-engine, many at a time.

    python bench/suite/peers/products.py CHECKPOINT [--processes 12] [--seconds 60]

DeepGEMM compiles a product with nvcc, seconds each, where a number of tokens first needs it, and
engines do so one after the other. Started before one, or beside its start, this fills the cache
that it looks into (`DG_JIT_CACHE_DIR`, the same for both). It needs vLLM's packages, a GPU and
`CUDA_HOME`; what it has not compiled in time the engine compiles itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BLOCK = 128
# What engines warm with goes first, the widest chunk of quail-engine's before all.
_FIRST = (109_824, 2_048, 1_024, 512, 256, 128, 64, 16_384, 8_192, 4_096)
# Beyond so many tokens all processors are busy with any, and one product serves most.
_VARIED = 16_384

Task = tuple[int, int, int]


def shapes(checkpoint: Path) -> list[tuple[int, int]]:
    """(rows, columns) of the merged weights of a layer of a Qwen3 checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    wide = heads * config["head_dim"]
    qkv = wide + 2 * shared * config["head_dim"]
    return [(qkv, hidden), (hidden, wide), (2 * inner, hidden), (hidden, inner)]


def tasks(checkpoint: Path) -> list[Task]:
    """(tokens, rows, columns) of products, the most wanted first and the rest shuffled.

    Numbers of tokens that four does not divide need one more kernel each, to align the scales.
    """
    weights = shapes(checkpoint)
    first = [(tokens, *weight) for tokens in (*_FIRST, _FIRST[1] + 1) for weight in weights]
    sizes = [*range(8, 64, 8), *range(64, _VARIED, 64)]
    rest = [(tokens, *weight) for tokens in sizes for weight in weights]
    random.Random(0).shuffle(rest)
    return first + rest


def multiply(task: Task) -> str:
    """Run one product, which compiles it; returns what went wrong, "" where nothing did."""
    import torch
    from vllm.utils.deep_gemm import fp8_gemm_nt

    tokens, rows, columns = task
    device = torch.device("cuda")
    try:
        left = torch.empty((tokens, columns), dtype=torch.float8_e4m3fn, device=device)
        right = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=device)
        scales = torch.ones((columns // BLOCK, tokens), device=device).T
        blocks = torch.ones((rows // BLOCK, columns // BLOCK), device=device)
        out = torch.empty((tokens, rows), dtype=torch.bfloat16, device=device)
        fp8_gemm_nt((left, scales), (right, blocks), out, is_deep_gemm_e8m0_used=False)
        torch.cuda.synchronize()
    except Exception as error:  # the engine meets it again, and says what it means
        return f"{task}: {type(error).__name__}: {error}".splitlines()[0]
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile until all is done or the time is over; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compile DeepGEMM's products beforehand.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    wanted = tasks(options.checkpoint)
    ends = time.monotonic() + options.seconds
    done, problems = 0, []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        results = pool.imap_unordered(multiply, wanted)
        while done < len(wanted):
            try:
                problem = results.next(max(ends - time.monotonic(), 0.0))
            except multiprocessing.TimeoutError:
                break
            done += 1
            problems += [problem] if problem else []
    for problem in problems[:5]:
        print(problem, file=sys.stderr)
    print(f"{done} of {len(wanted)} products, {len(problems)} failed", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
