"""Rates from timed batches, by a device whose times are known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from covey.arrays import Float64
from covey.engine.labels import Wanted
from covey.engine.model_runner import Launched
from covey.engine.timing import GPU_CONTEXT, LARGE_SECONDS, Timing, fit, measure_rates
from covey.kernels.base import ForwardBatch

PASS, TOKEN, PAIR = 3e-3, 7e-6, 1e-9


class Device:
    """Takes PASS + tokens · TOKEN + pairs · PAIR seconds for a batch, the first times longer."""

    def __init__(
        self,
        clock: list[float] | None = None,
        slow: Counter[int] | None = None,
        times: float = 1.0,
    ) -> None:
        self._times = times
        self.contexts: list[int] = []
        self.sizes: list[int] = []
        self.waiting = self.most_waiting = 0
        self._filled: set[int] = set()
        self._clock = [0.0] if clock is None else clock
        self._slow = Counter[int]() if slow is None else slow

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Launched:
        context = int((batch.prefix_slots[:, 1] - batch.prefix_slots[:, 0]).sum())
        pairs = len(batch) * context
        pairs += sum(end - row for row, end in enumerate(batch.subtree_ends.tolist()))
        assert self._filled.issuperset(range(context)), "slots are read that were never written"
        self._filled.update(batch.slot_mapping[batch.slot_mapping >= 0].tolist())
        self.contexts.append(context)
        self.sizes.append(len(batch))
        seconds = (PASS + len(batch) * TOKEN + pairs * PAIR) * self._times
        self._slow[len(batch)] -= 1
        if self._slow[len(batch)] >= 0:
            seconds *= 3.0
        self._clock[0] += seconds
        self.waiting += 1
        self.most_waiting = max(self.waiting, self.most_waiting)
        return Running(self, seconds)


class Running:
    def __init__(self, device: Device, seconds: float) -> None:
        self._device = device
        self._seconds = seconds

    def result(self) -> tuple[Float64, float]:
        self._device.waiting -= 1
        return np.zeros(0), self._seconds


@pytest.mark.parametrize("budget", [1024, 65_536])
def test_the_rates_of_a_gpu_are_found(budget: int) -> None:
    # The first two small batches and the first of each large kind compile something.
    device = Device(slow=Counter({budget // 16: 2, budget: 2}))
    rates = measure_rates(device, budget, 100_000, None)
    assert max(device.contexts) == min(GPU_CONTEXT, budget)
    assert max(device.sizes) == budget and device.most_waiting == 2
    assert rates.pass_seconds == pytest.approx(PASS, rel=1e-6)
    assert rates.token_seconds == pytest.approx(TOKEN, rel=1e-6)
    assert rates.pair_seconds == pytest.approx(PAIR, rel=1e-6)


def test_the_rates_of_a_processor_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("covey.engine.timing.time.process_time", lambda: 2 * clock[0])
    # The first small batch starts threads, the second meets another program.
    device = Device(clock, Counter({64: 2}))
    rates = measure_rates(device, 1024, 100_000, 2)
    assert rates.pass_seconds == pytest.approx(PASS, rel=1e-6)
    assert rates.token_seconds == pytest.approx(TOKEN, rel=1e-6)
    assert rates.pair_seconds == pytest.approx(PAIR, rel=1e-6)
    assert device.most_waiting == 1


@pytest.mark.parametrize("slower", [1.0, 300.0, 30_000.0])
def test_a_processor_is_not_kept_long(monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    clock = [0.0]
    monkeypatch.setattr("covey.engine.timing.time.process_time", lambda: clock[0])
    device = Device(clock, times=slower)
    measure_rates(device, 1024, 100_000, 1)
    small, large = min(device.sizes), max(device.sizes)
    assert large <= max(1024, 2 * small)
    # A large batch takes at most about as long as it should, or twice as long as a small one.
    once = slower * (PASS + small * TOKEN)
    assert slower * (PASS + large * TOKEN) < max(1.2 * LARGE_SECONDS, 2 * once)


@pytest.mark.parametrize("base", ["small", "large"])
def test_a_context_is_compared_with_the_batch_of_its_size(base: str) -> None:
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
