"""What a session may use, from a device's memory."""

from __future__ import annotations

import pytest

from covey.engine.limits import cpu_limits, gpu_limits
from covey.engine.loaded import check_room
from covey.errors import ModelError
from covey.models.registry import find_known

GIB = 1 << 30
SPEC = find_known("qwen3-4b-fp8").spec


@pytest.mark.parametrize("free", [0, 1, 3 * GIB, 20 * GIB, 75 * GIB, 135 * GIB])
def test_batches_and_kv_cache_fit_what_is_free(free: int) -> None:
    assert SPEC is not None
    limits = gpu_limits(SPEC, free)
    held = limits.slots * 147_456
    # Gate, up and their product of a whole batch in BF16 are the widest tensors.
    widest = limits.max_batched_tokens * 3 * SPEC.ffn * 2
    assert limits.in_flight == 2 and limits.context == SPEC.context
    assert limits.slots == 1 or held + widest < free
    assert free < 20 * GIB or limits.slots * 147_456 > free // 2


def test_a_large_gpu_takes_the_widest_batches_and_a_small_one_less() -> None:
    assert SPEC is not None
    budgets = [gpu_limits(SPEC, n * GIB).max_batched_tokens for n in (1, 8, 20, 75, 135)]
    assert budgets == sorted(budgets) and budgets[-1] == 65_536 and budgets[0] >= 1024


def test_a_cpu_keeps_a_gibibyte_of_keys_and_values() -> None:
    assert SPEC is not None
    assert cpu_limits(SPEC).slots * 2 * 147_456 <= GIB


def test_a_model_that_a_gpu_cannot_hold_is_refused_before_it_is_loaded() -> None:
    assert SPEC is not None
    check_room(SPEC, 8 * GIB, "an H100")
    with pytest.raises(ModelError, match=r"needs 7\.1 GiB .* the RTX has 6\.0 GiB free"):
        check_room(SPEC, 6 * GIB, "RTX")
