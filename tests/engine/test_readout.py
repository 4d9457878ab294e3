"""Answer tokens and margins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from covey.arrays import Int32, Int64
from covey.engine.readout import answer_tokens, margins
from covey.errors import ModelError
from covey.models.files import ModelFiles
from models.smollm2 import smollm2_path


class Fake:
    """An encoder by a function of the text."""

    def __init__(self, ids: Callable[[str], list[int]]) -> None:
        self.ids = ids

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        raise NotImplementedError


def test_smollm2_has_four_tokens_of_each_answer() -> None:
    found = answer_tokens(ModelFiles(smollm2_path()).encoder)
    assert len(found.true) == len(found.false) == 4
    assert not set(found.true) & set(found.false)


def test_spellings_with_one_first_token_count_once() -> None:
    found = answer_tokens(Fake(lambda text: [ord(text.strip()[0]), 1]))
    assert found.true == (ord("T"),) and found.false == (ord("F"),)


def test_a_shared_first_token_is_refused() -> None:
    with pytest.raises(ModelError, match=r"same token \(32\)"):
        answer_tokens(Fake(lambda text: [ord(text[0])]))


def test_margin_is_the_log_odds_of_the_summed_probabilities() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 8) * 5
    probabilities = torch.softmax(logits.double(), 1)
    expected = (probabilities[:, :3].sum(1) / probabilities[:, 3:].sum(1)).log()
    torch.testing.assert_close(margins(logits, 3).double(), expected, atol=1e-5, rtol=1e-5)
