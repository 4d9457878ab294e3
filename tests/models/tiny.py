"""Small random models in the formats that Covey reads, written by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
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


# Outside a layer, and within one.
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, model: Any) -> Path:
    """Save a model and the tokenizer as llama.cpp's converter would, float32."""
    config, kind = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    parsed = json.loads(make_tokenizer().to_str())
    tokens = sorted(parsed["model"]["vocab"], key=parsed["model"]["vocab"].__getitem__)
    tokens += [f"[PAD{number}]" for number in range(len(tokens), config.vocab_size)]
    special = {token["content"] for token in parsed["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in parsed["model"]["merges"]])
    writer.add_add_bos_token(False)
    state = model.state_dict()
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    for name, weight in state.items():
        own = name.removesuffix(".weight")
        if own.startswith("model.layers."):
            _, _, number, inner = own.split(".", 3)
            own = f"blk.{number}.{GGUF_NAMES[inner]}"
            if kind == "llama" and inner.endswith(("q_proj", "k_proj")):
                halves = weight.view(-1, 2, config.head_dim // 2, weight.shape[1])
                weight = halves.transpose(1, 2).reshape(weight.shape)
        else:
            own = GGUF_NAMES[own]
        writer.add_tensor(f"{own}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@torch.inference_mode()
def plain_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """Last-position logits of one prompt by transformers, (vocab,) float32."""
    found: torch.Tensor = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
    return found
