"""What the host makes a GPU wait for: queries of the suite on a device that only waits.

    python bench/idle.py CHECKPOINT IMDB-1 FEV-9 [--scale 0.1] [--token 6.9] [--profile]

Planner, executor, tokenizer, scheduler and forest are the real ones, answers are planted, and a
batch takes as long as its tokens would on an H200. So it needs no GPU, reads no weights, and shows
for each query how long the device stood idle before which batch. Seconds are this machine's.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from covey.arrays import Float64
from covey.engine.base import Engine
from covey.engine.labels import Wanted
from covey.engine.limits import gpu_limits
from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel, planned_costs
from covey.estimate.profile import ModelProfile
from covey.hardware.devices import gpu_facts
from covey.kernels.base import ForwardBatch
from covey.prompts.fast_tokens import checked_encoder
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS
from suite.choose import chosen
from suite.forced import ForcedModel
from suite.oracle import Oracle
from suite.plan import Plan
from suite.run import connected, corpus_of
from suite.smoke import smoke_corpus
from suite.sql import to_sql
from suite.tables import DEFAULT_SEED, Corpus
from suite.truth import plant

_DEVICE = "NVIDIA H200"
_BATCH_SECONDS = 0.004  # of a batch besides its tokens
_LAUNCH_SECONDS = 0.0015  # of the host, to start a batch's kernels
_SHOWN = 0.01  # seconds of idleness that make a line


class Waited:
    """A batch that is done at a time (`time.perf_counter`)."""

    def __init__(self, end: float, seconds: float, numbers: int) -> None:
        self._end = end
        self._seconds = seconds
        self._numbers = numbers

    def result(self) -> tuple[Float64, float]:
        """See `covey.engine.model_runner.Launched`; every number is 0."""
        time.sleep(max(self._end - time.perf_counter(), 0.0))
        return np.zeros(self._numbers), self._seconds


class WaitingRunner:
    """Runs batches one after another by waiting; see `covey.engine.model_runner.ModelRunner`.

    Args:
        token: seconds of a token.

    Attributes:
        log: (begin, end, tokens) of every batch, by `time.perf_counter`.
    """

    def __init__(self, token: float) -> None:
        self._token = token
        self.log: list[tuple[float, float, int]] = []

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Waited:
        """Queue a batch behind those before."""
        time.sleep(_LAUNCH_SECONDS)
        seconds = len(batch) * self._token + _BATCH_SECONDS
        begin = max([time.perf_counter(), *(end for _, end, _ in self.log[-1:])])
        self.log.append((begin, begin + seconds, len(batch)))
        numbers = len(batch.logits_indices) + (0 if wanted is None else len(wanted.answers))
        return Waited(begin + seconds, seconds, numbers)


class WaitingModel:
    """A model source whose engine has a checkpoint's shape and tokenizer and a `WaitingRunner`."""

    fingerprint = None

    def __init__(self, checkpoint: Path, runner: WaitingRunner) -> None:
        self._local = LocalModel(checkpoint, device="cpu")
        self._runner = runner
        self.name = self._local.name
        self.kinds = self._local.kinds
        device, spec = gpu_facts(_DEVICE), self._local.spec
        memory = 0.0 if device is None else device.memory
        self._limits = gpu_limits(spec, memory - spec.parameters * spec.weight_dtype.bytes)
        costs = planned_costs(spec, True, self._limits.max_batched_tokens)
        known = self._local.profile()
        self._profile = replace(
            known, costs=costs, device=device, rates=None, capacity=self._limits.slots
        )

    def profile(self) -> ModelProfile:
        """See `ModelSource.profile`: of the device that is imitated."""
        return self._profile

    def open(self) -> Engine:
        """See `ModelSource.open`."""
        encoder, layout = self._local.encoder, LAYOUTS[DEFAULT_LAYOUT]
        return LoadedEngine(
            self.name,
            "",
            lambda slots: self._runner,
            self._local.spec,
            checked_encoder(encoder, encoder.json),
            layout,
            self._limits,
        )


def run(plan: Plan, model: ForcedModel, corpus: Corpus, runner: WaitingRunner) -> None:
    """Run a query and print when the device was idle."""
    runner.log.clear()
    with connected(model, corpus) as connection:
        query = connection.sql(to_sql(plan))
        begin = time.perf_counter()
        rows = sum(batch.num_rows for batch in query.batches())
        seconds = time.perf_counter() - begin
    busy = sum(end - start for start, end, _ in runner.log)
    tokens = sum(count for _, _, count in runner.log)
    print(
        f"{plan.id:<12}{seconds:8.2f} s, idle {1 - busy / seconds:.1%}, {tokens:,} tokens in"
        f" {len(runner.log)} batches, {rows:,} rows"
    )
    last = begin
    for start, end, count in runner.log:
        if start - last > _SHOWN:
            print(f"{last - begin:10.3f} s: {start - last:.3f} s before {count:,} tokens")
        last = end
    print(f"{last - begin:10.3f} s: {begin + seconds - last:.3f} s behind the last")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queries asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Show what a GPU would wait for.")
    parser.add_argument("checkpoint", type=Path, help="a folder with config.json, tokenizer.json")
    parser.add_argument("queries", nargs="+", help="queries, families or groups")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--token", type=float, default=6.9, help="microseconds of a token")
    parser.add_argument("--profile", action="store_true", help="print where the host's time went")
    options = parser.parse_args(arguments)
    runner = WaitingRunner(options.token * 1e-6)
    source = WaitingModel(options.checkpoint, runner)
    small = smoke_corpus(DEFAULT_SEED)
    warm = ForcedModel(source, Oracle(small, plant(small))).open()
    with connected(warm, small) as connection:
        connection.sql(to_sql(chosen(["IMDB-2"])[0])).arrow()
    corpus = corpus_of(options.scale, DEFAULT_SEED)
    model = ForcedModel(source, Oracle(corpus, plant(corpus)), engine=warm.engine)
    for plan in chosen(options.queries):
        with cProfile.Profile() as profile:
            if not options.profile:
                profile.disable()
            run(plan, model, corpus, runner)
        if options.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
    return 0


if __name__ == "__main__":
    sys.exit(main())
