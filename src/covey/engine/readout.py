"""From the state of a prompt's last token to an answer. Nothing is ever decoded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.prompts.tokens import Encoder

_TRUE = ("TRUE", " TRUE", "True", " True")
_FALSE = ("FALSE", " FALSE", "False", " False")


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """First tokens of the spellings of TRUE and FALSE, each sorted, no token in both."""

    true: tuple[int, ...]
    false: tuple[int, ...]


def answer_tokens(encoder: Encoder) -> AnswerTokens:
    """The answer tokens of a tokenizer.

    Raises:
        ModelError: a spelling has no tokens, or one of TRUE and one of FALSE begin with the
            same.
    """
    true, false = ({_first(encoder, word) for word in words} for words in (_TRUE, _FALSE))
    both = sorted(true & false)
    if both:
        raise ModelError(
            f"This tokenizer begins TRUE and FALSE with the same token ({both[0]}), so that the"
            " two cannot be told apart in one pass. Choose another model."
        )
    return AnswerTokens(tuple(sorted(true)), tuple(sorted(false)))


def _first(encoder: Encoder, word: str) -> int:
    ids = encoder.ids(word)
    if not ids:
        raise ModelError(f"This tokenizer has no tokens for {word!r}. Choose another model.")
    return ids[0]


def margins(logits: Tensor, true_count: int) -> Tensor:
    """Log-odds of TRUE over FALSE, in nats.

    Args:
        logits: (n, r) float32, the TRUE tokens first.
        true_count: how many of the r are TRUE tokens.

    Returns:
        (n,) float32.
    """
    true, false = logits[:, :true_count], logits[:, true_count:]
    return torch.logsumexp(true, 1) - torch.logsumexp(false, 1)
