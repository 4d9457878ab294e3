"""A whole model on the Hopper kernels, without a scheduler: errors, margins, speed.

    python bench/make_checkpoint.py CHECKPOINT
    python bench/hopper model CHECKPOINT [--only errors|margins|speed]

Errors are those of the residual stream after each layer against the reference kernels in float32
on the widened weights. Margins are those of prompts, each alone in a batch, packed with the others,
and asked behind a span of the KV cache. Speed is that of batches through the model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
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
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from hopper.harness import DEVICE, Results, sustained, synchronize
from hopper.inputs import BF16, batch_of, keeping, suffixes
from hopper.margins import compare, print_heading, print_margins

ANSWER_ROWS = tuple(range(300, 308))
_OPENING = 20  # tokens that all prompts begin with
_LAST = 5  # tokens of a prompt that are asked behind the KV cache


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
        self.spec = spec = files.spec
        self._checkpoint = files.checkpoint()
        self.config = AttentionConfig(
            spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
        )
        self._weights = {BF16: load_weights(spec, self._checkpoint, DEVICE, BF16)}
        self.quantised = self._weights[BF16].layers[0].qkv.scales is not None
        started = time.perf_counter()
        self.kernels, sentence = choose_kernels(self.config, DEVICE, BF16, self.quantised)
        print(f"{sentence} ({time.perf_counter() - started:.1f} s)")
        self.rows = torch.tensor(ANSWER_ROWS, device=DEVICE)
        self.model = self.model_on(self.kernels)

    def model_on(self, kernels: Any) -> CausalLM[Any]:
        """The model, everything but FP8 matrices in the dtype of the kernels."""
        if kernels.dtype not in self._weights:
            weights = load_weights(self.spec, self._checkpoint, DEVICE, kernels.dtype)
            self._weights[kernels.dtype] = weights
        return CausalLM(self.spec, self._weights[kernels.dtype], kernels)

    def reference(self, dtype: torch.dtype, quantised: bool) -> ReferenceKernels:
        """The reference kernels, which round products' inputs to FP8 where `quantised`."""
        return ReferenceKernels(self.config, DEVICE, dtype, quantised)

    def kv_cache(self, slots: int, fill: float = float("nan")) -> list[KvLayer]:
        """A KV cache that holds the same everywhere."""
        shape = (2, slots, self.spec.kv_heads, self.spec.d_head)
        return [
            KvLayer(*torch.full(shape, fill, device=DEVICE, dtype=BF16).unbind())
            for _ in range(self.spec.layers)
        ]

    def random_tokens(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """(count,) int32 ids."""
        return rng.integers(0, self.spec.vocab, count, dtype=np.int32)


def ends_of(lengths: Sequence[int]) -> np.ndarray:
    """Last rows of runs that lie side by side."""
    return np.cumsum(np.array(lengths, dtype=np.int64)) - 1


def print_errors(bench: Bench, results: Results) -> None:
    """Residual errors a layer against float32, and those of the reference as a measure."""
    runs = [(400, -1, 0), (380, 19, 20), (380, 19, 20), (90, -1, 0)] + [(6, 1249, 90)] * 4
    plain = batch_of(runs)
    batch = replace(
        plain,
        tokens=bench.random_tokens(len(plain), np.random.default_rng(3)),
        logits_indices=ends_of([length for length, _, _ in runs]),
    )
    kinds: dict[str, Kernels[Any]] = {
        "float32": bench.reference(torch.float32, False),
        "FP8 in float32": bench.reference(torch.float32, bench.quantised),
        "FP8 in BF16": bench.reference(BF16, bench.quantised),
        "Hopper": bench.kernels,
    }
    seen: dict[str, list[Tensor]] = {}
    for name, kernels in kinds.items():
        recorder = Recorder(kernels)
        logits = bench.model_on(recorder).logits(batch, bench.rows)
        seen[name] = [*recorder.seen, logits]
    exact, rounded = seen["float32"], seen["FP8 in float32"]
    pairs = [(name, other) for other in (exact, rounded) for name in ("FP8 in BF16", "Hopper")]
    print(f"residual at norms, {len(batch)} tokens: relative error of")
    print("  norm     reference | Hopper to float32     reference | Hopper to FP8 in float32")
    places = [0, 1, 2, 3, 4, 7, 15, 31, 47, 63, len(exact) - 2, len(exact) - 1]
    for place in sorted({p for p in places if p < len(exact)}):
        cells = [relative_error(seen[name][place], against[place]) for name, against in pairs]
        label = "logits" if place == len(exact) - 1 else str(place)
        print(f"  {label:<7}" + "".join(f"{cell:14.2e}" for cell in cells), flush=True)
        results.setdefault("residual", {})[label] = cells


def compare_margins(bench: Bench, results: Results, count: int = 120) -> None:
    """Margins of prompts alone, packed, and behind a KV cache span."""
    rng = np.random.default_rng(8)
    opening = bench.random_tokens(_OPENING, rng)
    prompts = [
        np.concatenate([opening, bench.random_tokens(n, rng)])
        for n in rng.integers(_LAST, 600, count).tolist()
    ]
    fp8 = bench.model_on(bench.reference(BF16, bench.quantised))
    exact = bench.model_on(bench.reference(torch.float32, False))
    alone = _ask(bench, bench.model, prompts, 1)
    fp8_alone, exact_alone = _ask(bench, fp8, prompts, 1), _ask(bench, exact, prompts, 1)
    pairs = {
        "alone, a second time": (alone, _ask(bench, bench.model, prompts, 1)),
        "packed, prefix shared": (alone, _ask(bench, bench.model, prompts, 50)),
        "last 5 tokens behind the cache": (alone, _behind(bench, prompts)),
        "FP8 in BF16, from alone": (alone, fp8_alone),
        "float32, from alone": (alone, exact_alone),
        "alone, from float32": (exact_alone, alone),
        "FP8 in BF16, from float32": (exact_alone, fp8_alone),
        "FP8 in BF16, packed": (fp8_alone, _ask(bench, fp8, prompts, 50)),
    }
    print(f"margins of {count} prompts, their mean {alone.mean():.2f}")
    print_heading()
    for label, (base, other) in pairs.items():
        figures = compare(base, other)
        results.setdefault("margins", {})[label] = figures
        print_margins(label, figures)


def _ask(
    bench: Bench, model: CausalLM[Any], prompts: list[np.ndarray], together: int
) -> np.ndarray:
    """Margins of prompts with a common opening, so many in a batch."""
    found = []
    for start in range(0, len(prompts), together):
        first, *rest = prompts[start : start + together]
        runs = [(len(first), -1, 0)]
        runs += [(len(p) - _OPENING, _OPENING - 1, _OPENING) for p in rest]
        batch = replace(
            batch_of(runs),
            tokens=np.concatenate([first, *(p[_OPENING:] for p in rest)]),
            logits_indices=ends_of([length for length, _, _ in runs]),
        )
        found.append(_margins(model.logits(batch, bench.rows)))
    return np.concatenate(found)


def _margins(logits: Tensor) -> np.ndarray:
    return margins(logits, len(ANSWER_ROWS) // 2).double().cpu().numpy()


def _behind(bench: Bench, prompts: list[np.ndarray]) -> np.ndarray:
    """Margins of prompts whose all but five last tokens were computed and kept before."""
    found = []
    kv_cache = bench.kv_cache(20_000)
    for start in range(0, len(prompts), 20):
        group = prompts[start : start + 20]
        lengths = [len(p) - _LAST for p in group]
        slots = 1000 * np.random.default_rng(start).permutation(20)
        places = [s + np.arange(n) for s, n in zip(slots, lengths, strict=False)]
        first = replace(
            keeping(batch_of([(n, -1, 0) for n in lengths]), np.concatenate(places)),
            tokens=np.concatenate([p[:-_LAST] for p in group]),
        )
        bench.model.logits(first, bench.rows, kv_cache)
        spans = [
            (_LAST * i, _LAST * (i + 1), int(slots[i]), int(slots[i]) + n)
            for i, n in enumerate(lengths)
        ]
        second = replace(
            batch_of([(_LAST, -1, n) for n in lengths], spans),
            tokens=np.concatenate([p[-_LAST:] for p in group]),
            logits_indices=ends_of([_LAST] * len(group)),
        )
        found.append(_margins(bench.model.logits(second, bench.rows, kv_cache)))
    return np.concatenate(found)


def speed_cases(bench: Bench, share: float) -> dict[str, tuple[ForwardBatch, list[KvLayer] | None]]:
    """Batches by what they stand for, and a share of their tokens."""
    kv_cache = bench.kv_cache(8192)
    for layer in kv_cache:
        layer.k.normal_()
        layer.v.normal_()
    found: dict[str, tuple[ForwardBatch, list[KvLayer] | None]] = {}
    for tokens in (8192, 16384, 32768):
        count = max(int((tokens * share - 300) / 275), 1)
        plain = batch_of([(300, -1, 0)] + [(275, 24, 25)] * count)
        answers = ends_of([300] + [275] * count)
        label = f"filter, 300 tokens, {tokens // 1024}k"
        found[label] = replace(plain, logits_indices=answers), None
    for tokens, length, anchor in (
        (16384, 5, 4096), (32768, 5, 4096), (16384, 15, 1024), (16384, 60, 256),
    ):  # fmt: skip
        plain = suffixes(int(tokens * share), length, anchor)
        answers = ends_of([length] * (len(plain) // length))
        label = f"{length} tokens behind {anchor:,}, {tokens // 1024}k"
        found[label] = replace(plain, logits_indices=answers), kv_cache
    plain = batch_of([(int(4000 * share), -1, 0)] * 4)
    every = np.arange(len(plain))
    kept = keeping(plain, np.where(every < len(plain) // 2, every, -1))
    found["4 documents of 4,000, kept"] = kept, kv_cache
    return {
        label: (replace(batch, tokens=bench.random_tokens(len(batch), rng)), cache)
        for rng in (np.random.default_rng(4),)
        for label, (batch, cache) in found.items()
    }


def print_speed(bench: Bench, results: Results, share: float) -> None:
    """Microseconds a token of batches, sustained and the host's part."""
    print(f"speed{'':<37}tokens/batch   us/token   tokens/s   host ms   plan ms")
    cases = speed_cases(bench, share)
    for label, (batch, kv_cache) in cases.items():
        work = partial(bench.model.logits, batch, bench.rows, kv_cache)
        took = sustained(work, 2.0)
        started = time.perf_counter()
        work()
        host = time.perf_counter() - started
        synchronize()
        started = time.perf_counter()
        bench.kernels.plan(batch)
        plan = time.perf_counter() - started
        print(
            f"  {label:<40}{len(batch):12,}{took / len(batch) * 1e6:11.3f}"
            f"{len(batch) / took:11,.0f}{host * 1e3:10.1f}{plan * 1e3:10.1f}",
            flush=True,
        )
        results.setdefault("speed", {})[label] = {
            "tokens": len(batch), "seconds": took, "host": host, "plan": plan,
        }  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--only", choices=("errors", "margins", "speed"))
    parser.add_argument("--scale", type=float, default=1.0, help="of prompts and batches")


def run(options: argparse.Namespace, results: Results) -> None:
    """Run the parts asked for."""
    bench = Bench(options.checkpoint)
    parts = {
        "errors": partial(print_errors, bench, results),
        "speed": partial(print_speed, bench, results, options.scale),
        "margins": partial(compare_margins, bench, results, max(int(120 * options.scale), 2)),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()
