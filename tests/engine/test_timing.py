"""Rates from timed chunks, by a device whose times are known."""

from __future__ import annotations

import numpy as np
import pytest

from covey.engine.labels import Wanted
from covey.engine.runtime import Floats
from covey.engine.timing import GPU_CONTEXT, Timing, fit, measure_rates
from covey.kernels.base import Chunk

PASS, TOKEN, PAIR = 3e-3, 7e-6, 1e-9


class Device:
    """Takes PASS + tokens · TOKEN + pairs · PAIR seconds for a chunk."""

    def __init__(self) -> None:
        self.contexts: list[int] = []

    def launch(self, chunk: Chunk, wanted: Wanted | None = None) -> Device:
        context = int((chunk.past_slots[:, 1] - chunk.past_slots[:, 0]).sum())
        pairs = len(chunk) * context
        pairs += sum(end - row for row, end in enumerate(chunk.exits.tolist()))
        self.contexts.append(context)
        self._seconds = PASS + len(chunk) * TOKEN + pairs * PAIR
        return self

    def result(self) -> tuple[Floats, float]:
        return np.zeros(0), self._seconds


@pytest.mark.parametrize("budget", [1024, 65_536])
def test_the_rates_of_a_gpu_are_found(budget: int) -> None:
    device = Device()
    rates = measure_rates(device, budget, 100_000, None)
    assert max(device.contexts) == GPU_CONTEXT
    assert rates.pass_seconds == pytest.approx(PASS, rel=1e-6)
    assert rates.token_seconds == pytest.approx(TOKEN, rel=1e-6)
    assert rates.pair_seconds == pytest.approx(PAIR, rel=1e-6)


@pytest.mark.parametrize("base", ["small", "large"])
def test_a_context_is_compared_with_the_chunk_of_its_size(base: str) -> None:
    def timing(tokens: int, pairs: int) -> Timing:
        return Timing(tokens, pairs, PASS + tokens * TOKEN + pairs * PAIR)

    small, large = timing(64, 1000), timing(1024, 16_000)
    behind = timing((small if base == "small" else large).tokens, 900_000)
    rates = fit(small, large, behind)
    assert rates.pair_seconds == pytest.approx(PAIR, rel=1e-6)
    assert rates.token_seconds == pytest.approx(TOKEN, rel=1e-6)


def test_noise_never_makes_a_rate_negative() -> None:
    rates = fit(Timing(64, 1000, 2.0), Timing(1024, 16_000, 1.0), Timing(64, 66_000, 1.5))
    assert min(rates.pass_seconds, rates.token_seconds, rates.pair_seconds) >= 0.0
    assert rates.token_seconds > 0.0
