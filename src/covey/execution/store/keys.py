"""What an answer is stored under: a name for the question, 128 bits for the documents."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from enum import Enum
from typing import Any

import numpy as np

from covey.arrays import UInt64
from covey.errors import InputError
from covey.prompts.question import Question

SALT_WORDS = 4


def question_digest(fingerprint: str, question: Question) -> str:
    """Names a question put to a model: hex.

    Every field of the question counts, whichever there are: a question that gains a field
    gains a new name, and no answer is mistaken for that of another question.
    """
    text = json.dumps([fingerprint, _plain(question)], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON that differs wherever values differ."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return [type(value).__name__, named]
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if isinstance(value, tuple | list):
        return ["list", *(_plain(item) for item in value)]
    if isinstance(value, dict):
        pairs = ([_plain(key), _plain(item)] for key, item in value.items())
        return ["dict", *sorted(pairs, key=repr)]
    if isinstance(value, float):
        return ["float", value.hex()]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise InputError(f"A question cannot be stored with a {type(value).__name__} in it.")


def prompt_keys(documents: UInt64, salt: UInt64) -> UInt64:
    """One 128-bit key for each tuple of documents.

    A single document's key is its digest. Of several, the digests are mixed one after
    another, in a way that can be undone for each by itself, so that tuples that differ in
    one document never meet. The salt is the store's own and secret: without it nobody can
    look for two pairs of one key.

    Args:
        documents: (n, arity, 2) digests.
        salt: (SALT_WORDS,) uint64.

    Returns:
        (n, 2) uint64.
    """
    arity = documents.shape[1]
    if arity == 1:
        return documents[:, 0]
    first = np.full(len(documents), salt[0])
    second = np.full(len(documents), salt[1])
    for place in range(arity):
        first = _mixed((first ^ documents[:, place, 0]) + salt[2])
        second = _mixed((second ^ documents[:, place, 1]) + salt[3])
        first += second
        second = _mixed(second ^ first)
    return np.stack([first, second], axis=1)


def _mixed(words: UInt64) -> UInt64:
    """Each word through the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
