"""Columnar token storage."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.arrays import Int32, Int64
from covey.errors import RunError
from covey.prompts.documents import DocumentStore
from covey.prompts.tokens import DocumentTokens, encode_sound, gather
from crowd import at_once


class Characters:
    """One token a character, and a count of the texts that were encoded."""

    def __init__(self) -> None:
        self.encoded = 0

    def ids(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        for text in texts:
            text.encode()
        self.encoded += len(texts)
        offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
        flat = [self.ids(text) for text in texts]
        return np.array([i for ids in flat for i in ids], dtype=np.int32), offsets


@given(st.lists(st.lists(st.text("abc", max_size=6), max_size=8), max_size=4), st.data())
def test_documents_are_encoded_once_and_taken_in_any_order(
    batches: list[list[str]], data: st.DataObject
) -> None:
    store, encoder = DocumentStore(), Characters()
    documents = DocumentTokens(store, encoder)
    for batch in batches:
        ids = store.add(batch)
        if len(ids):
            picked = data.draw(st.lists(st.sampled_from(ids.tolist()), max_size=9))
            wanted = np.array(picked, dtype=np.int64)
            taken = documents.take(wanted)
            assert taken.flat.dtype == np.int32 and taken.offsets.dtype == np.int64
            texts = [store.texts(np.array([i]))[0] for i in picked]
            assert ["".join(map(chr, taken.run(i))) for i in range(len(taken))] == texts
            assert documents.lengths(wanted).tolist() == [len(t) for t in texts]
        documents.ensure(ids)
        documents.ensure(ids)
    assert encoder.encoded == len(store)


@pytest.mark.parametrize("spill_bytes", [1 << 30, 0])
def test_threads_add_encode_and_take_and_each_finds_its_own(spill_bytes: int) -> None:
    for trial in range(50):
        store, encoder = DocumentStore(spill_bytes), Characters()
        documents = DocumentTokens(store, encoder, spill_bytes)

        def work(
            number: int,
            trial: int = trial,
            store: DocumentStore = store,
            documents: DocumentTokens = documents,
        ) -> bool:
            good = True
            for turn in range(4):
                # Half of the texts are this thread's own, half every thread's.
                names = [f"{number} {turn}", f"{turn}"]
                texts = [f"{name} {i} {trial}" * (i % 3 + 1) for name in names for i in range(9)]
                ids = store.add([*texts, "bad \ud800", None])[:-1]
                if (number + turn) % 2:
                    documents.ensure(ids)
                taken = documents.take(ids)
                found = ["".join(map(chr, taken.run(i))) for i in range(len(taken))]
                good &= found == [*texts, ""] and store.texts(ids[:-1]) == texts
                good &= documents.lengths(ids).tolist() == [*map(len, texts), 0]
                good &= list(documents.errors) == [ids[-1]]
            return good

        assert all(at_once(work))
        # For the one that fails, a letter is tried.
        assert encoder.encoded == len(store), "each text once"


def test_what_nobody_encoded_is_no_empty_document() -> None:
    store = DocumentStore()
    documents = DocumentTokens(store, Characters())
    ids = store.add(["one", "two"])
    documents.ensure(ids[:1])
    documents.stop()
    assert documents.take(ids[:1]).run(0).tolist() == [ord(c) for c in "one"]
    for read in (documents.take, documents.lengths):
        with pytest.raises(RunError, match="before they were tokenised"):
            read(ids)


def test_a_text_without_encoding_fails_alone() -> None:
    store = DocumentStore()
    documents = DocumentTokens(store, Characters())
    ids = store.add(["good", "bad \ud800", "fine"])
    documents.ensure(ids)
    assert list(documents.errors) == [1]
    assert "not valid Unicode" in documents.errors[1]
    assert documents.lengths(ids).tolist() == [4, 0, 4]
    assert documents.take(ids).run(2).tolist() == [ord(c) for c in "fine"]


class Raising(Characters):
    """Fails on a batch with a certain text in it, as a tokenizer may."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        if any("crash" in text for text in texts):
            raise self.error
        return super().encode(texts)


PanicException = type("PanicException", (BaseException,), {})


@pytest.mark.parametrize("error", [ValueError("crash 1"), KeyError(3), PanicException("crash")])
@given(st.lists(st.sampled_from(["crash", "good", "", "fine \ud800"]), min_size=1, max_size=9))
def test_whatever_a_tokenizer_raises_only_its_texts_fail(
    error: BaseException, kinds: list[str]
) -> None:
    texts = [f"{kind} {i}" for i, kind in enumerate(kinds)]
    flat, offsets, errors = encode_sound(Raising(error), texts)
    good = [not text.startswith(("crash", "fine")) for text in texts]
    assert sorted(errors) == [i for i, sound in enumerate(good) if not sound]
    found = ["".join(map(chr, flat[a:b])) for a, b in itertools.pairwise(offsets.tolist())]
    assert found == [text if sound else "" for text, sound in zip(texts, good, strict=True)]
    for place, reason in errors.items():
        assert "crash" not in reason, "a reason shows no text"
        assert type(error).__name__ in reason or texts[place].startswith("fine")


def test_an_interrupt_and_a_lack_of_memory_are_no_fault_of_a_text() -> None:
    for error in (KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)):
            encode_sound(Raising(error), ["good", "crash"])


def test_a_tokenizer_that_can_encode_nothing_is_no_fault_of_the_texts() -> None:
    class Broken(Raising):
        def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
            raise self.error

    for error in (ValueError("broken"), ImportError("no module"), OSError("no file")):
        with pytest.raises(type(error)):
            encode_sound(Broken(error), ["good", "crash"])
    with pytest.raises(ImportError):
        encode_sound(Raising(ImportError("no module")), ["good", "crash"])


def test_no_texts_have_no_tokens() -> None:
    flat, offsets, errors = encode_sound(Raising(ValueError()), [])
    assert len(flat) == 0 and offsets.tolist() == [0] and errors == {}


def test_gather_copies_runs_with_repeats_and_empty_ones() -> None:
    flat = np.arange(10, dtype=np.int32)
    taken = gather(flat, np.array([7, 2, 2, 0]), np.array([3, 2, 2, 0]))
    assert taken.flat.tolist() == [7, 8, 9, 2, 3, 2, 3]
    assert taken.offsets.tolist() == [0, 3, 5, 7, 7]
    assert len(gather(flat, np.empty(0, np.int64), np.empty(0, np.int64)).flat) == 0
