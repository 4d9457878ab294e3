"""Small random models in the formats that Covey reads, written by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

VOCAB = 512
CONTEXT = 2304

SHAPE: dict[str, Any] = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT,
    # transformers' own default spread leaves logits so close together that a wrong
    # attention mask hardly shows.
    initializer_range=0.2,
    bos_token_id=None,
    eos_token_id=None,
)


def make_model(architecture: str, *, tied: bool, **changes: Any) -> Any:
    """A seeded random transformers model in evaluation mode, float32."""
    torch.manual_seed(7)
    shape = {**SHAPE, "tie_word_embeddings": tied, **changes}
    if architecture == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(head_dim=32, **shape))
    else:
        model = LlamaForCausalLM(LlamaConfig(**shape))
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model.eval()


def make_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer that knows TRUE and FALSE and three added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    answers = "TRUE FALSE True False answer TRUE answer FALSE is True is False "
    words = "the customer asks for a refund of the order and waits for an answer "
    tokenizer.train_from_iterator([answers * 8, words * 4], trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


def write_folder(folder: Path, model: Any) -> Path:
    """Save a model and the tokenizer as the hub would hold them."""
    model.save_pretrained(folder)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@torch.inference_mode()
def plain_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """Last-position logits of one prompt by transformers, (vocab,) float32."""
    found: torch.Tensor = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
    return found
