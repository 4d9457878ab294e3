"""Margins of two runs are compared by what an answer makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from hopper_margins import compare, print_margins


def test_flips_shift_and_prompts_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    default = np.array([2.0, -1.0, 0.5, np.nan, 0.0])
    other = np.array([1.0, 0.5, 0.25, 3.0, 0.0])
    found = compare(default, other)
    assert found["prompts"] == 4 and found["missing"] == 1
    assert found["flips"] == 2500 and found["largest_flipped"] == 1.0
    assert found["mean"] == pytest.approx(2.75 / 4) and found["largest"] == 1.5
    assert found["shift"] == pytest.approx(0.25 / 4)
    assert found["spread"] == pytest.approx(np.std([2.0, -1.0, 0.5, 0.0]))
    nothing = compare(np.array([np.nan]), np.array([1.0]))
    assert nothing["prompts"] == 0 and nothing["flips"] == 0
    print_margins("rows", found | {"seconds": 1.5, "us_a_token": 7.25})
    line = capsys.readouterr().out.split()
    assert line[:5] == ["rows", "1.50", "7.25", "2500", "1.000"]
    assert line[-4:] == ["1", "without", "an", "answer"]
