"""A whole model on the Hopper kernels: errors, margins alone and packed, speed.

    python bench/make_checkpoint.py CHECKPOINT
    python bench/hopper_model.py CHECKPOINT [--only errors|margins|speed]

Needs an H100 or H200 and covey[gpu]. Errors are those of the residual stream after each
layer against the reference kernels in float32 on the widened weights. Margins are those
of a few hundred prompts, each alone in a batch, packed with the others, and asked behind
a span of the KV cache. Speed is that of batches through the model, without a scheduler.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.engine.readout import margins
from covey.kernels.base import AttentionConfig, ForwardBatch, Kernels, KvLayer
from covey.kernels.choose import choose_kernels
from covey.kernels.hopper.launch import relative_error
from covey.kernels.reference import ReferenceKernels
from covey.models.causal_lm import CausalLM, ModelWeights, load_weights, rope_frequencies
from covey.models.checkpoint import open_checkpoint
from covey.models.files import ModelFiles
from covey.models.spec import ModelSpec
from gpu_timing import versions
from hopper_cases import CUDA, batch_of, suffixes

ANSWER_ROWS = tuple(range(300, 308))
NONE = np.empty(0, dtype=np.int64)


class Recorder:
    """Kernels that keep a copy of the residual stream at every norm."""

    def __init__(self, kernels: Kernels[Any]) -> None:
        self._kernels = kernels
        self.seen: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor) -> Any:
        """See `Kernels.norm`."""
        total, normed = self._kernels.norm(residual, delta, weight)
        self.seen.append(total.float().clone())
        return total, normed


class Bench:
    """A checkpoint, loaded in BF16 for the GPU kernels and in float32 for the reference."""

    def __init__(self, folder: Path) -> None:
        files = ModelFiles(folder)
        self.spec: ModelSpec = files.spec
        self._checkpoint = open_checkpoint(files)
        spec = self.spec
        self.shape = AttentionConfig(
            spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
        )
        started = time.perf_counter()
        self.weights = self.load(torch.bfloat16)
        torch.cuda.synchronize()
        print(f"loaded in {time.perf_counter() - started:.1f} s")
        self.quantised = self.weights.layers[0].qkv.scales is not None
        started = time.perf_counter()
        self.kernels, sentence = choose_kernels(self.shape, CUDA, torch.bfloat16, self.quantised)
        print(f"{sentence} ({time.perf_counter() - started:.1f} s)")
        self.model = CausalLM(spec, self.weights, self.kernels)
        self.rows = torch.tensor(ANSWER_ROWS, device=CUDA)

    def load(self, dtype: torch.dtype) -> ModelWeights:
        """The weights with everything but FP8 matrices in a dtype."""
        return load_weights(self.spec, self._checkpoint, CUDA, dtype)

    def kv_cache(self, slots: int) -> list[KvLayer]:
        """A KV cache that holds NaN."""
        shape = (2, slots, self.spec.kv_heads, self.spec.d_head)
        return [
            KvLayer(*torch.full(shape, float("nan"), device=CUDA, dtype=torch.bfloat16))
            for _ in range(self.spec.layers)
        ]

    def filled(self, batch: ForwardBatch, seed: int) -> ForwardBatch:
        """The batch with random tokens."""
        rng = np.random.default_rng(seed)
        tokens = rng.integers(0, self.spec.vocab, len(batch), dtype=np.int32)
        return replace(batch, tokens=tokens)


def ends_of(lengths: Sequence[int]) -> np.ndarray:
    """Last rows of runs that lie side by side."""
    return np.cumsum(np.array(lengths, dtype=np.int64)) - 1


def print_errors(bench: Bench) -> None:
    """Residual errors a layer against float32, and those of the reference as a measure."""
    lengths = [400, 380, 380, 90, 6, 6, 6, 6]
    plain = batch_of(
        [(400, -1, 0), (380, 19, 20), (380, 19, 20), (90, -1, 0)] + [(6, 1249, 90)] * 4
    )  # fmt: skip
    batch = replace(bench.filled(plain, 3), logits_indices=ends_of(lengths))
    exact_weights = bench.load(torch.float32)
    kinds: dict[str, tuple[ModelWeights, Kernels[Any]]] = {
        "float32": (exact_weights, ReferenceKernels(bench.shape, CUDA, torch.float32)),
        "FP8 in float32": (
            exact_weights,
            ReferenceKernels(bench.shape, CUDA, torch.float32, bench.quantised),
        ),
        "FP8 in BF16": (
            bench.weights,
            ReferenceKernels(bench.shape, CUDA, torch.bfloat16, bench.quantised),
        ),
        "Hopper": (bench.weights, bench.kernels),
    }
    seen: dict[str, list[Tensor]] = {}
    for name, (weights, kernels) in kinds.items():
        recorder: Any = Recorder(kernels)
        logits = CausalLM(bench.spec, weights, recorder).logits(batch, bench.rows)
        seen[name] = [*recorder.seen, logits]
    exact, rounded = seen["float32"], seen["FP8 in float32"]
    pairs = (("FP8 in BF16", exact), ("Hopper", exact), ("FP8 in BF16", rounded),
             ("Hopper", rounded))  # fmt: skip
    print(f"residual at norms, {len(batch)} tokens: relative error of")
    print("  norm     reference | Hopper to float32     reference | Hopper to FP8 in float32")
    places = [0, 1, 2, 3, 4, 7, 15, 31, 47, 63, len(exact) - 2, len(exact) - 1]
    for place in sorted({p for p in places if p < len(exact)}):
        cells = [relative_error(seen[name][place], against[place]) for name, against in pairs]
        label = "logits" if place == len(exact) - 1 else str(place)
        print(f"  {label:<7}" + "".join(f"{cell:14.2e}" for cell in cells))


def print_margins(bench: Bench, count: int = 120) -> None:
    """Margins of prompts alone, packed, and behind a KV cache span."""
    rng = np.random.default_rng(8)
    opening = rng.integers(0, bench.spec.vocab, 20, dtype=np.int32)
    prompts = [
        np.concatenate([opening, rng.integers(0, bench.spec.vocab, n, dtype=np.int32)])
        for n in rng.integers(5, 600, count).tolist()
    ]
    alone = np.concatenate([_ask(bench.model, bench, [prompt]) for prompt in prompts])
    again = np.concatenate([_ask(bench.model, bench, [prompt]) for prompt in prompts])
    found = {"alone, a second time": again}
    found["packed, opening shared"] = _packed(bench.model, bench, prompts)
    found["last 5 tokens behind the KV cache"] = _behind(bench, prompts)
    quantised = ReferenceKernels(bench.shape, CUDA, torch.bfloat16, bench.quantised)
    reference = CausalLM(bench.spec, bench.weights, quantised)
    rounded = _asked_alone(reference, bench, prompts)
    found["reference, FP8 in BF16"] = rounded
    exact = CausalLM(
        bench.spec, bench.load(torch.float32), ReferenceKernels(bench.shape, CUDA, torch.float32)
    )
    against = _asked_alone(exact, bench, prompts)
    print(f"margins of {count} prompts: spread {alone.std():.2f}, mean {alone.mean():.2f}")
    print("  difference from alone                        mean      largest   flips")
    for label, values in [*found.items(), ("reference, float32", against)]:
        _print_difference(label, values, alone)
    print("  difference from the reference in float32")
    for label, values in (("alone", alone), ("reference, FP8 in BF16", rounded)):
        _print_difference(label, values, against)
    print("  the reference, packed, from itself alone")
    _print_difference("FP8 in BF16", _packed(reference, bench, prompts), rounded)


def _packed(model: CausalLM[Any], bench: Bench, prompts: list[np.ndarray]) -> np.ndarray:
    parts = [prompts[i : i + 50] for i in range(0, len(prompts), 50)]
    return np.concatenate([_ask(model, bench, part) for part in parts])


def _print_difference(label: str, values: np.ndarray, base: np.ndarray) -> None:
    gap = np.abs(values - base)
    flips = int(((values > 0) != (base > 0)).sum())
    print(f"  {label:<40}{gap.mean():10.2e}{gap.max():12.2e}{flips:8d}")


def _asked_alone(model: CausalLM[Any], bench: Bench, prompts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([_ask(model, bench, [prompt]) for prompt in prompts])


def _ask(model: CausalLM[Any], bench: Bench, prompts: list[np.ndarray]) -> np.ndarray:
    """Margins of prompts with a common opening of 20, in one batch."""
    first, *rest = prompts
    plain = batch_of([(len(first), -1, 0)] + [(len(p) - 20, 19, 20) for p in rest])
    tokens = np.concatenate([first, *(p[20:] for p in rest)])
    answers = ends_of([len(first), *(len(p) - 20 for p in rest)])
    batch = replace(plain, tokens=tokens, logits_indices=answers)
    return _margins(model.logits(batch, bench.rows))


def _margins(logits: Tensor) -> np.ndarray:
    return margins(logits, len(ANSWER_ROWS) // 2).double().cpu().numpy()


def _behind(bench: Bench, prompts: list[np.ndarray]) -> np.ndarray:
    """Margins of prompts whose all but five last tokens were computed and kept before."""
    found = []
    kv_cache = bench.kv_cache(20_000)
    for start in range(0, len(prompts), 20):
        group = prompts[start : start + 20]
        lengths = [len(p) - 5 for p in group]
        slots = np.random.default_rng(start).permutation(20)
        places = np.concatenate(
            [1000 * s + np.arange(n) for s, n in zip(slots, lengths, strict=False)]
        )
        first = replace(
            batch_of([(n, -1, 0) for n in lengths]),
            tokens=np.concatenate([p[:-5] for p in group]),
            slot_mapping=places.astype(np.int32),
        )
        bench.model.logits(first, bench.rows, kv_cache)
        spans = [
            (5 * i, 5 * i + 5, 1000 * int(slots[i]), 1000 * int(slots[i]) + n)
            for i, n in enumerate(lengths)
        ]
        second = replace(
            batch_of([(5, -1, n) for n in lengths], spans),
            tokens=np.concatenate([p[-5:] for p in group]),
            logits_indices=ends_of([5] * len(group)),
        )
        found.append(_margins(bench.model.logits(second, bench.rows, kv_cache)))
    return np.concatenate(found)


def speed_cases(bench: Bench) -> dict[str, tuple[ForwardBatch, list[KvLayer] | None]]:
    """Batches by what they stand for."""
    kv_cache = bench.kv_cache(8192)
    for layer in kv_cache:
        layer.k.normal_()
        layer.v.normal_()
    found: dict[str, tuple[ForwardBatch, list[KvLayer] | None]] = {}
    for tokens in (8192, 16384, 32768):
        count = (tokens - 300) // 275
        plain = batch_of([(300, -1, 0)] + [(275, 24, 25)] * count)
        answers = ends_of([300] + [275] * count)
        found[f"filter, 300 tokens, {tokens // 1024}k"] = (
            replace(plain, logits_indices=answers),
            None,
        )
    for tokens, length, anchor in (
        (16384, 5, 4096), (32768, 5, 4096), (16384, 15, 1024), (16384, 60, 256),
    ):  # fmt: skip
        plain = suffixes(tokens, length, anchor)
        answers = ends_of([length] * (tokens // length))
        name = f"{length} tokens behind {anchor:,}, {tokens // 1024}k"
        found[name] = replace(plain, logits_indices=answers), kv_cache
    plain = batch_of([(4000, -1, 0)] * 4)
    every = np.arange(len(plain))
    found["4 documents of 4,000, kept"] = (
        replace(plain, slot_mapping=np.where(every < 8000, every, -1).astype(np.int32)), kv_cache,
    )  # fmt: skip
    return found


def print_speed(bench: Bench, seconds: float = 2.0) -> None:
    """Microseconds a token of batches, sustained, and the host's part."""
    print(f"speed{'':<37}tokens/batch   us/token   tokens/s   host ms   plan ms")
    for label, (plain, kv_cache) in speed_cases(bench).items():
        batch = bench.filled(plain, 4)

        def work() -> Tensor:
            return bench.model.logits(batch, bench.rows, kv_cache)  # noqa: B023

        for _ in range(3):
            work()
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        host = time.perf_counter() - started
        torch.cuda.synchronize()
        once = time.perf_counter() - started
        count = max(3, int(seconds / once))
        started = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        took = (time.perf_counter() - started) / count
        started = time.perf_counter()
        bench.kernels.plan(batch)
        plan = time.perf_counter() - started
        print(
            f"  {label:<40}{len(batch):12,}{took / len(batch) * 1e6:11.3f}"
            f"{len(batch) / took:11,.0f}{host * 1e3:10.1f}{plan * 1e3:10.1f}",
            flush=True,
        )


def print_speed_and_profile(bench: Bench) -> None:
    """Speed, and where the time of two batches goes."""
    print_speed(bench)
    for label in ("filter, 300 tokens, 16k", "5 tokens behind 4,096, 16k"):
        print_profile(bench, label)


def print_profile(bench: Bench, label: str, lines: int = 14) -> None:
    """Device time by kernel for one batch."""
    from torch.profiler import ProfilerActivity, profile

    plain, kv_cache = speed_cases(bench)[label]
    batch = bench.filled(plain, 4)
    bench.model.logits(batch, bench.rows, kv_cache)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        bench.model.logits(batch, bench.rows, kv_cache)
        torch.cuda.synchronize()
    totals: dict[str, tuple[int, float]] = {}
    for event in found.events():
        count, spent = totals.get(event.name, (0, 0.0))
        totals[event.name] = count + 1, spent + event.device_time
    print(f"profile of {label}: us/token, launches, kernel")
    for name, (count, spent) in sorted(totals.items(), key=lambda x: -x[1][1])[:lines]:
        print(f"  {spent / len(batch):8.3f}{count:7d}  {name[:88]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description="Check and time a model on a Hopper GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("errors", "margins", "speed"))
    options = parser.parse_args(arguments)
    print(versions())
    bench = Bench(options.folder)
    parts: dict[str, Callable[[Bench], None]] = {
        "errors": print_errors, "speed": print_speed_and_profile, "margins": print_margins,
    }  # fmt: skip
    for name, part in parts.items():
        if options.only in (None, name):
            part(bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
