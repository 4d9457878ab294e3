"""Gigatoken is used while it agrees with the plain encoder, and never after it differed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from covey.arrays import Int32, Int64
from covey.prompts.fast_tokens import CheckedEncoder, checked_encoder


class Letters:
    """A token a letter; counts the texts it was given."""

    def __init__(self) -> None:
        self.texts = 0

    def ids(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        self.texts += len(texts)
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return np.array([ord(c) for text in texts for c in text], dtype=np.int32), offsets


class Fast:
    """Answers as Gigatoken does: columns of offsets and unsigned ids."""

    def __init__(self, wrong: str = "") -> None:
        self._wrong = wrong

    def encode_batch(self, texts: list[str]) -> Any:
        ids = [ord(c) + (c == self._wrong) for text in texts for c in text]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        content = SimpleNamespace(data=np.array(ids, dtype=np.uint32))
        return SimpleNamespace(layout=SimpleNamespace(offsets=offsets, content=content))


TEXTS = [f"text {i} with a q" if i % 2 else "" for i in range(301)]


def test_only_a_sample_is_encoded_twice() -> None:
    plain = Letters()
    flat, offsets = CheckedEncoder(plain, Fast()).encode(TEXTS)
    assert plain.texts == 32
    expected = Letters().encode(TEXTS)
    assert flat.dtype == np.int32 and offsets.dtype == np.int64
    np.testing.assert_array_equal(flat, expected[0])
    np.testing.assert_array_equal(offsets, expected[1])


def test_after_a_difference_all_is_plain() -> None:
    plain = Letters()
    encoder = CheckedEncoder(plain, Fast(wrong="q"))
    np.testing.assert_array_equal(encoder.encode(TEXTS)[0], Letters().encode(TEXTS)[0])
    assert not encoder.trusted and plain.texts == 32 + len(TEXTS)
    encoder.encode(TEXTS)
    assert plain.texts == 32 + 2 * len(TEXTS)


class Failing:
    """Fails, or gives columns that are none."""

    def __init__(self, offsets: list[int] | None) -> None:
        self._offsets = offsets

    def encode_batch(self, texts: list[str]) -> Any:
        if self._offsets is None:
            raise ValueError("no such vocabulary")
        offsets = np.array([*self._offsets, *[7] * (len(texts) + 1 - len(self._offsets))])
        content = SimpleNamespace(data=np.zeros(7, dtype=np.uint32))
        return SimpleNamespace(layout=SimpleNamespace(offsets=offsets, content=content))


@pytest.mark.parametrize("offsets", [None, [0, 5, 3], [1], [0, 7, 9, 7], [-1]])
def test_what_fails_or_breaks_off_is_not_trusted(offsets: list[int] | None) -> None:
    encoder = CheckedEncoder(Letters(), Failing(offsets))
    np.testing.assert_array_equal(encoder.encode(TEXTS)[0], Letters().encode(TEXTS)[0])
    assert not encoder.trusted


def test_few_texts_are_plain_and_surrogates_are_refused() -> None:
    plain = Letters()
    encoder = CheckedEncoder(plain, Fast())
    encoder.encode(TEXTS[:20])
    assert plain.texts == 20
    with pytest.raises(UnicodeError):
        encoder.encode([*TEXTS, "\ud800"])


@pytest.mark.parametrize("installed", [False, True])
def test_without_gigatoken_or_with_a_vocabulary_it_refuses_the_encoder_is_plain(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    def refuse(data: str) -> None:
        raise RuntimeError("no such vocabulary")

    module = ModuleType("gigatoken")
    module.Tokenizer = SimpleNamespace(from_json=refuse)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gigatoken", module if installed else None)
    plain = Letters()
    assert checked_encoder(plain, "{}") is plain
    if installed:
        module.Tokenizer = SimpleNamespace(from_json=lambda data: Fast())  # type: ignore[attr-defined]
        assert isinstance(checked_encoder(plain, "{}"), CheckedEncoder)
