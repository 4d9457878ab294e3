"""Text to token ids. Documents are data: no text ever becomes a special token.

The tokenizer of a checkpoint is rebuilt without its added tokens, so `<|im_end|>` in
a customer's mail is encoded like any other punctuation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from covey.arrays import Int32, Int64, offsets_of
from covey.errors import ModelError
from covey.models.config import read_tokenizer_json

# The word splitting of a GGUF file is a name only; these are the patterns it stands for.
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


class TextEncoder:
    """Encodes plain text with a byte-level BPE tokenizer.

    Attributes:
        fingerprint: hex digest of the vocabulary, merges and splitting rules.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.fingerprint = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()

    @property
    def json(self) -> str:
        """The tokenizer in the format of Hugging Face's `tokenizer.json`."""
        text: str = self._tokenizer.to_str()
        return text

    def ids(self, text: str) -> list[int]:
        """Token ids of one text, nothing added around it; ModelError as for `encode`."""
        with _encoding():
            found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        """Token ids of many texts, nothing added around them.

        Returns:
            (total,) int32 ids, and (n + 1,) int64 offsets: text i is ids[o[i]:o[i + 1]].

        Raises:
            UnicodeError: a text holds a lone surrogate, which has no encoding.
            ModelError: the tokenizer's own rules cannot encode a text.
        """
        for text in texts:
            text.encode()
        with _encoding():
            encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [np.asarray(e.ids, dtype=np.int32) for e in encoded]
        flat = np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)
        return flat, offsets_of(np.array([len(row) for row in rows], dtype=np.int64))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


def encoder_from_file(path: Path, vocab: int | None = None) -> TextEncoder:
    """Read a Hugging Face `tokenizer.json`.

    Args:
        vocab: tokens that the model has, where a tokenizer of more is to be refused.

    Raises:
        ModelError: the file is missing, is no tokenizer, or gives tokens that the model lacks.
    """
    spec = read_tokenizer_json(path)
    model = spec["model"]
    if model.get("dropout"):
        raise ModelError(f"{path} sets dropout: it would encode one text in many ways.")
    try:
        added = {token["content"] for token in spec.pop("added_tokens", None) or ()}
        # What a caller asks for around or instead of a text's own tokens.
        spec |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        _drop_unreachable(model, added)
        with _guarded():
            encoder = TextEncoder(Tokenizer.from_str(json.dumps(spec)))
        vocabulary = model["vocab"]  # ids by token, or a list of tokens
        named = isinstance(vocabulary, dict)
        ids = list(vocabulary.values() if named else range(len(vocabulary)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} is not a tokenizer that can be read: {error!r}. Fetch the file again."
        ) from error
    if len(set(ids)) < len(ids):
        raise ModelError(f"{path} gives one id to two tokens. Fetch the file again.")
    if vocab is not None and max(ids, default=0) >= vocab:
        raise ModelError(
            f"{path} has a token {max(ids):,}, and the model {vocab:,} tokens. The tokenizer and"
            " the weights do not belong together."
        )
    return encoder


@contextmanager
def _guarded() -> Iterator[None]:
    """ValueError where the tokenizer library refuses or breaks off."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, UnicodeError):
        raise
    except BaseException as error:  # Rust raises plain Exception, and panics past it
        raise ValueError(str(error)) from error


@contextmanager
def _encoding() -> Iterator[None]:
    """ModelError where a tokenizer has no tokens for a text, which its file should prevent."""
    try:
        with _guarded():
            yield
    except UnicodeError:
        raise
    except ValueError as error:
        raise ModelError(
            f"The model's tokenizer cannot encode a text: {error}. Its tokenizer.json is damaged"
            " or incomplete; fetch it again."
        ) from error


def encoder_from_gguf(
    tokens: list[str], kinds: list[int], merges: list[str], words: str, path: Path
) -> TextEncoder:
    """Build the byte-level BPE tokenizer that a GGUF file describes.

    Args:
        tokens: the vocabulary, by id.
        kinds: llama.cpp's token types, by id; 3 is a control token.
        merges: "left right", best first.
        words: `tokenizer.ggml.pre`, the name of the word splitting.

    Raises:
        ModelError: the word splitting is not known or the vocabulary is inconsistent.
    """
    normalizer, splitter, whole_words = _word_splitting(words, path)
    if len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise ModelError(
            f"{path} holds an inconsistent vocabulary: {len(tokens):,} tokens,"
            f" {len(set(tokens)):,} of them different, of {len(kinds):,} kinds."
        )
    control = {token for token, kind in zip(tokens, kinds, strict=True) if kind == 3}
    model: dict[str, Any] = {
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [tuple(merge.split(" ", 1)) for merge in merges],
    }
    try:
        _drop_unreachable(model, control)
        with _guarded():
            bpe = models.BPE(model["vocab"], model["merges"], ignore_merges=whole_words)
            tokenizer = Tokenizer(bpe)
            if normalizer is not None:
                tokenizer.normalizer = normalizer
            tokenizer.pre_tokenizer = splitter
            tokenizer.decoder = decoders.ByteLevel()
            return TextEncoder(tokenizer)
    except ValueError as error:
        raise ModelError(f"{path} holds an inconsistent vocabulary: {error}.") from error


def _word_splitting(
    words: str, path: Path
) -> tuple[normalizers.Normalizer | None, pre_tokenizers.PreTokenizer, bool]:
    """Normaliser, word splitter, and whether a whole word in the vocabulary skips merging."""
    match words:
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return None, pre_tokenizers.Sequence([digits, _bytes_of_words()]), False
        case "gpt-2" | "gpt2":
            return None, _bytes_of_words(), False
        case "llama-bpe" | "llama3":
            return None, _bytes_of_pattern(_LLAMA3_WORDS), True
        case "qwen2":
            return normalizers.NFC(), _bytes_of_pattern(_QWEN2_WORDS), False
    raise ModelError(
        f"{path} splits words by {words!r}, which Covey does not know"
        " (known: gpt-2, llama-bpe, qwen2, smollm)."
        " Use the model's safetensors folder, which carries its tokenizer.json."
    )


def _bytes_of_words() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _bytes_of_pattern(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, to_bytes])


def _drop_unreachable(model: dict[str, Any], special: set[str]) -> None:
    """Take special tokens out of the vocabulary, but for those that merging can make.

    A tokenizer that looks whole words up before it merges would else find them.
    """
    if not special:
        return
    pairs = (m.split(" ", 1) if isinstance(m, str) else m for m in model.get("merges", ()))
    made = {left + right for left, right in pairs}
    for token in special - made:
        model["vocab"].pop(token, None)
