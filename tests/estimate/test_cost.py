"""The formulas of the cost model: cases worked out by hand, and what holds for all counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.estimate.cost import (
    Lengths,
    Work,
    dominates,
    frontier,
    prefixes,
    roofline_seconds,
    suffixes,
)
from covey.estimate.rates import Rates, assumed_rates
from covey.hardware.devices import GPUS, Device, gpu_facts
from covey.models.registry import find_known
from covey.models.spec import ModelCosts, WeightDtype, costs_of

COUNTS = st.floats(0, 1e6)
LISTS = st.lists(st.integers(0, 5000), min_size=1, max_size=20)


def brute(prefix: int, tails: list[int]) -> tuple[int, int]:
    """Fresh tokens and pairs of one prefix and the suffixes behind it, counted one by one."""
    pairs = sum(range(1, prefix + 1))
    for tail in tails:
        pairs += sum(prefix + i for i in range(1, tail + 1))
    return prefix + sum(tails), pairs


def test_lengths_of_known_texts() -> None:
    some, none = Lengths.of([2, 4]), Lengths.of([])
    assert (some.mean, some.square) == (3.0, 10.0)
    assert (none.mean, none.square) == (0.0, 0.0)
    assert some | Lengths.of([3]) | none == Lengths.of([2, 4, 3])


def test_independent_texts_one_behind_the_other() -> None:
    one, other = [2, 4], [1, 3, 5]
    both = [a + b for a in one for b in other]
    whole, parts = Lengths.of(both), Lengths.of(one) + Lengths.of(other)
    assert parts.mean == pytest.approx(whole.mean)
    assert parts.square == pytest.approx(whole.square)


@given(LISTS, st.integers(0, 50), LISTS)
def test_a_join_counted_token_by_token(documents, around, partners) -> None:
    fresh = pairs = 0
    for document in documents:
        f, p = brute(document + around, partners)
        fresh, pairs = fresh + f, pairs + p
    prefix = Lengths.of(documents) + Lengths.fixed(around)
    count = len(documents) * len(partners)
    work = prefixes(len(documents), Lengths.of(documents), around, 1024) + suffixes(
        count, Lengths.of(partners), prefix, 1024, anchors=len(documents)
    )
    assert work.prompts == count
    assert work.fresh == pytest.approx(fresh)
    assert work.pairs == pytest.approx(pairs)
    assert work.passes == pytest.approx(fresh / 1024)
    full = sum(d + around + p for d in documents for p in partners)
    assert work.requested == pytest.approx(full)


def test_what_is_kept_is_written_and_what_is_behind_it_reads_it() -> None:
    hundred = Lengths.fixed(100)
    assert prefixes(10, hundred, 20, 1000, kept=True).written == 1200
    assert prefixes(10, hundred, 20, 1000, kept=True).peak == 1200
    assert prefixes(10, hundred, 20, 1000).written == 0
    prefix = Lengths.fixed(120)
    assert suffixes(50, Lengths.fixed(5), prefix, 1000, anchors=10).read == 10 * 120
    assert suffixes(50, Lengths.fixed(5), prefix, 1000).read == 50 * 120
    # One prefix with suffixes for four passes is read four times.
    assert suffixes(800, Lengths.fixed(5), prefix, 1000, anchors=1).read == 4 * 120
    assert suffixes(50, Lengths.fixed(5), prefix, 1000, resident=False).read == 0


@given(COUNTS, COUNTS, st.integers(1, 3000), st.integers(0, 40), st.booleans())
def test_work_adds_up(one, other, length, around, kept) -> None:
    lengths = Lengths.fixed(length)

    def work(count: float) -> Work:
        return prefixes(count, lengths, around, 512, kept=kept) + suffixes(
            count, Lengths.fixed(7), lengths, 512
        )

    together, apart = work(one + other), work(one) + work(other)
    for name in ("prompts", "requested", "fresh", "pairs", "written", "read", "passes"):
        assert getattr(together, name) == pytest.approx(getattr(apart, name)), name
    assert apart.peak == max(work(one).peak, work(other).peak)
    if one:
        assert work(one).times(3.0).axes == pytest.approx(work(3.0 * one).axes)


@given(COUNTS, COUNTS, LISTS, LISTS)
def test_more_rows_never_cost_less(one, more, documents, partners) -> None:
    def axes(count: float) -> list[float]:
        prefix = Lengths.of(documents)
        work = prefixes(count, prefix, 3, 512, kept=True)
        work += suffixes(count * 2, Lengths.of(partners), prefix, 512, anchors=count)
        rate = assumed_rates(QWEN, H200)
        seconds = [roofline_seconds(work, QWEN, H200), rate.seconds(work)]
        return [*work.axes, work.requested, work.prompts, work.passes, *seconds]

    assert all(a <= b * (1 + 1e-9) for a, b in zip(axes(one), axes(one + more), strict=True))


def work_of(*axes: float) -> Work:
    return Work(**dict(zip(("fresh", "pairs", "written", "read", "peak"), axes, strict=True)))


def test_the_frontier_keeps_what_nothing_beats() -> None:
    cheap, other = work_of(1, 9, 1, 1, 1), work_of(9, 1, 1, 1, 1)
    worse, same = work_of(2, 9, 1, 1, 1), replace(cheap, prompts=5)
    assert dominates(cheap, worse) and not dominates(worse, cheap)
    assert not dominates(cheap, other) and not dominates(cheap, same)
    assert frontier([worse, cheap, other, same], lambda w: w) == [cheap, other]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 5), max_size=12))
def test_the_frontier_is_what_no_other_dominates(points) -> None:
    works = [work_of(*point) for point in points]
    expected = {w.axes for w in works if not any(dominates(o, w) for o in works)}
    kept = frontier(works, lambda w: w)
    assert len(kept) == len(expected) and {w.axes for w in kept} == expected


QWEN_SPEC = find_known("qwen3-4b-fp8").spec  # type: ignore[union-attr]
assert QWEN_SPEC is not None
QWEN = costs_of(QWEN_SPEC, WeightDtype.FLOAT8, WeightDtype.BFLOAT16, 16384)
H200 = gpu_facts("NVIDIA H200")
assert H200 is not None


def test_the_units_of_qwen3_4b() -> None:
    assert QWEN.projection_flops + QWEN.mlp_flops == pytest.approx(2 * 3.63e9, rel=1e-3)
    assert QWEN.pair_flops == pytest.approx(0.59e6, rel=1e-3)
    assert QWEN.kv_bytes == 147_456
    assert QWEN.projection_bytes + QWEN.mlp_bytes == pytest.approx(3.63e9, rel=1e-3)


def unit_costs(**changes: float) -> ModelCosts:
    ones = ModelCosts(2.0, 3.0, 5.0, 7.0, 11.0, 13.0, WeightDtype.FLOAT8, WeightDtype.BFLOAT16, 1)
    return replace(ones, **changes)  # type: ignore[arg-type]


DEVICE = Device("a", {"float8_e4m3": 10.0, "bfloat16": 4.0, "float32": 1.0}, 2.0, 1.0, 1.0)


def test_the_roofline_takes_the_larger_of_compute_and_traffic_in_each_part() -> None:
    free = {"projection_flops": 0, "projection_bytes": 0, "mlp_flops": 0, "mlp_bytes": 0}
    free |= {"pair_flops": 0, "kv_bytes": 0}
    parts = [
        unit_costs(**{k: v for k, v in free.items() if k.split("_")[0] not in part})
        for part in (("projection",), ("mlp",), ("pair", "kv"))
    ]
    busy = Work(fresh=1000, pairs=400, written=10, read=20, passes=1)
    # Compute is above 1 * 11 / 2, 1 * 13 / 2 and 30 * 7 / 2.
    found = [roofline_seconds(busy, part, DEVICE) for part in parts]
    assert found == [1000 * 2 / 10, 1000 * 3 / 10, 400 * 5 / 4]
    assert roofline_seconds(busy, unit_costs(), DEVICE) == 200 + 300 + 500
    idle = Work(fresh=1, pairs=1, written=10, read=20, passes=1)
    found = [roofline_seconds(idle, part, DEVICE) for part in parts]
    assert found == [11 / 2, 13 / 2, 30 * 7 / 2]


def test_expected_time_is_passes_tokens_and_pairs() -> None:
    rates = Rates(0.5, 0.01, 1e-4, 1.1)
    assert rates.seconds(Work(fresh=100, pairs=1000, passes=2)) == 1 + 1 + 0.1


def test_the_datasheet_alone_is_never_faster_than_light() -> None:
    work = prefixes(1e4, Lengths.fixed(300), 20, 16384, kept=True)
    light = roofline_seconds(work, QWEN, H200)
    assert light < assumed_rates(QWEN, H200).seconds(work) < 4 * light


def test_a_dtype_that_a_device_lacks_is_computed_in_the_next_wider_one() -> None:
    a100 = gpu_facts("NVIDIA A100-SXM4-80GB")
    assert a100 is not None and a100.peak("float8_e4m3") == a100.peak("bfloat16") == 312e12
    assert a100.peak("float16") == a100.peak("bfloat16")


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_devices_are_known_by_the_drivers_name(driver, name) -> None:
    found = gpu_facts(driver)
    assert found is not None and found.name == name
    assert found in [device for _, device in GPUS]


def test_an_unknown_device_is_not_guessed() -> None:
    assert gpu_facts("Some GPU 9") is None
