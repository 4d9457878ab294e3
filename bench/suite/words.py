"""Words, the texts made of them, and a tokenizer that needs no download.

Every word of `vocabulary.txt` is one token, with a space before it, both of SmolLM2's
tokenizer (a test looks) and of the suite's own, so a text of n words and full stops has n
tokens. Real prose has about 1.3 tokens a word; lengths here are therefore set in tokens,
and `TOKENS_PER_WORD` is the ratio by which a length in tokens becomes one in words.

The suite's own tokenizer stands in for Qwen3's where a model has random weights: it splits
text by Qwen's pattern and gives each piece that the suite uses one token, but for DOCUMENT
and ANSWER, which have two. Bytes stand for anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

TOKENS_PER_WORD = 1.0  # of SmolLM2 and of `make_tokenizer`, full stops counting as words

_FILE = Path(__file__).with_name("vocabulary.txt")
_SENTENCE = 12  # tokens of a sentence, full stop included, on average
# The word splitting that Qwen2 and Qwen3 declare in their tokenizer.json.
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# DOCUMENT = DOC + UMENT and ANSWER = ANS + WER: with these the fixed tokens of a join
# prompt, six before a partner and four behind it, agree with the published totals.
_MERGES = (
    ("D", "O"),
    ("DO", "C"),
    ("U", "M"),
    ("E", "N"),
    ("EN", "T"),
    ("UM", "ENT"),
    ("A", "N"),
    ("AN", "S"),
    ("W", "E"),
    ("WE", "R"),
    ("Ġ", "DOC"),
)


@cache
def vocabulary() -> dict[str, tuple[str, ...]]:
    """The words of each section of the file."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        else:
            current += line.split()
    return {name: tuple(words) for name, words in sections.items()}


def generator(seed: int, *path: int) -> np.random.Generator:
    """The random numbers of one place: equal seeds and paths give equal numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *path])))


class Writer:
    """Writes made-up prose about one subject, token by token.

    Args:
        subject: a section of the vocabulary.
    """

    def __init__(self, subject: str) -> None:
        words = vocabulary()
        self._first = np.array(words["openers"], dtype=object)
        self._openers = np.array([f" {word}" for word in words["openers"]], dtype=object)
        self._glue = np.array([f" {word}" for word in words["glue"]], dtype=object)
        self._subject = np.array([f" {word}" for word in words[subject]], dtype=object)

    def tokens(self, rng: np.random.Generator, count: int, *, stop: bool = True) -> list[str]:
        """`count` tokens of prose as texts to be joined; `stop` ends them by a full stop."""
        places = np.arange(count)
        pieces = np.where(
            places % 2 == 0,
            self._glue[rng.integers(len(self._glue), size=count)],
            self._subject[rng.integers(len(self._subject), size=count)],
        )
        ends = np.cumsum(rng.integers(_SENTENCE - 4, _SENTENCE + 5, size=count // 4 + 2)) - 1
        ends = ends[ends < count - 2]
        pieces[ends] = "."
        after = ends + 1
        pieces[after] = self._openers[rng.integers(len(self._openers), size=len(after))]
        if count:
            pieces[0] = self._first[rng.integers(len(self._first))]
        if stop and count > 1:
            pieces[-1] = "."
        found: list[str] = pieces.tolist()
        return found

    def text(self, rng: np.random.Generator, count: int) -> str:
        """A text of `count` tokens."""
        return "".join(self.tokens(rng, count))


def make_tokenizer(literals: Iterable[str]) -> Tokenizer:
    """The suite's tokenizer.

    Args:
        literals: texts whose pieces get a token each, beside the words.
    """
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in _MERGES:
        vocab.setdefault(left + right, len(vocab))
    apart = {"DOCUMENT", "ANSWER", "ĠDOCUMENT", "ĠANSWER"}
    words = sorted({word for section in vocabulary().values() for word in section})
    answers = ["TRUE", " TRUE", "True", " True", "FALSE", " FALSE", "False", " False", ".", "\n\n"]
    texts = [*answers, *words, *(f" {word}" for word in words), *literals]
    for text in texts:
        for piece, _ in splitter.pre_tokenize_str(text):
            if piece not in apart:
                vocab.setdefault(piece, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, list(_MERGES), ignore_merges=True))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
    """The token ids of each text, nothing added around them."""
    found = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [np.asarray(each.ids, dtype=np.int32) for each in found]


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Put the tokenizer into a checkpoint's folder, as the hub's files name it."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 40960}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
