"""Write a random-weight Qwen3 checkpoint as the Hugging Face hub would hold it.

    python bench/make_checkpoint.py FOLDER [--size 4b] [--dtype fp8] [--layers N] [--seed 1]
                                    [--tokenizer FILE]

A measurement of speed needs a model's shape and sane magnitudes, not its knowledge. The
folder has config.json, tokenizer.json and safetensors in shards; with fp8, linear weights
are e4m3 with a scale for each block of 128 x 128 under NAME_scale_inv. The tokenizer is the
file given, else a byte-level BPE trained on a few made-up texts, with which prompts are
longer than with a real one. Needs Covey, safetensors and tokenizers; uses the GPU where
there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from covey.kernels.base import Weight
from covey.kernels.fp8_format import FP8_BLOCK
from covey.kernels.scales import quantise_weight

_SHARD_BYTES = 2 * 2**30
_VOCAB = 151936
_TRAINED_VOCAB = 4096


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense Qwen3 decoder: layers, residual width, query heads, feed-forward width."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    kv_heads: int = 8
    d_head: int = 128
    vocab: int = _VOCAB


SHAPES = {
    "tiny": Shape(4, 512, 8, 1536, kv_heads=2),
    "0.6b": Shape(28, 1024, 16, 3072),
    "1.7b": Shape(28, 2048, 16, 6144),
    "4b": Shape(36, 2560, 32, 9728),
    "8b": Shape(36, 4096, 32, 12288),
}


def write_checkpoint(
    folder: Path,
    shape: Shape,
    *,
    fp8: bool,
    seed: int,
    device: torch.device,
    tokenizer: Path | None = None,
) -> int:
    """Write all files; returns the bytes of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape, fp8), indent=2))
    if tokenizer is None:
        make_tokenizer(seed).save(str(folder / "tokenizer.json"))
    else:
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
    shard: dict[str, Tensor] = {}
    where: dict[str, str] = {}
    total = filled = number = 0
    for name, tensor in _tensors(shape, fp8, seed, device):
        size = tensor.numel() * tensor.element_size()
        if shard and filled + size > _SHARD_BYTES:
            save_file(shard, folder / _shard_name(number))
            shard, filled, number = {}, 0, number + 1
        shard[name] = tensor.cpu().contiguous()
        where[name] = _shard_name(number)
        filled += size
        total += size
    save_file(shard, folder / _shard_name(number))
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def make_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE that knows TRUE and FALSE, from texts that a seed makes up."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(6000)]
    texts = [" ".join(rng.choices(words, k=60)).capitalize() + "." for _ in range(1500)]
    answers = "TRUE FALSE True False answer TRUE answer FALSE is True is False " * 400
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_TRAINED_VOCAB,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([answers, *texts], trainer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    return tokenizer


def _tensors(
    shape: Shape, fp8: bool, seed: int, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    draw = torch.Generator(device).manual_seed(seed)

    def normal(rows: int, columns: int, spread: float) -> Tensor:
        return torch.randn(rows, columns, device=device, generator=draw) * spread

    def norm(width: int) -> Tensor:
        found = torch.rand(width, device=device, generator=draw) + 0.5
        return found.to(torch.bfloat16)

    yield "model.embed_tokens.weight", normal(shape.vocab, shape.hidden, 1.0).to(torch.bfloat16)
    q_width, kv_width = shape.heads * shape.d_head, shape.kv_heads * shape.d_head
    # Each layer adds two outputs to the residual; together they grow it no more than twice.
    quiet = (2 * shape.layers) ** -0.5
    for number in range(shape.layers):
        prefix = f"model.layers.{number}."
        for name, rows, columns, gain in (
            ("self_attn.q_proj", q_width, shape.hidden, 1.0),
            ("self_attn.k_proj", kv_width, shape.hidden, 1.0),
            ("self_attn.v_proj", kv_width, shape.hidden, 1.0),
            ("self_attn.o_proj", shape.hidden, q_width, quiet * 2),
            ("mlp.gate_proj", shape.ffn, shape.hidden, 1.0),
            ("mlp.up_proj", shape.ffn, shape.hidden, 1.0),
            ("mlp.down_proj", shape.hidden, shape.ffn, quiet * 2),
        ):
            weight = normal(rows, columns, gain * columns**-0.5)
            key = f"{prefix}{name}.weight"
            if fp8:
                rounded = quantise_weight(Weight(weight))
                yield key, rounded.values
                yield f"{key}_scale_inv", rounded.scales
            else:
                yield key, weight.to(torch.bfloat16)
        yield f"{prefix}input_layernorm.weight", norm(shape.hidden)
        yield f"{prefix}post_attention_layernorm.weight", norm(shape.hidden)
        yield f"{prefix}self_attn.q_norm.weight", norm(shape.d_head)
        yield f"{prefix}self_attn.k_norm.weight", norm(shape.d_head)
    yield "model.norm.weight", norm(shape.hidden)


def _config(shape: Shape, fp8: bool) -> dict[str, object]:
    config: dict[str, object] = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.d_head,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    if fp8:
        config["quantization_config"] = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        }
    return config


def _shard_name(number: int) -> str:
    return f"model-{number + 1:05d}.safetensors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and say what was written; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write a random Qwen3 checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SHAPES, default="4b")
    parser.add_argument("--dtype", choices=("fp8", "bf16"), default="fp8")
    parser.add_argument("--layers", type=int, help="fewer layers than the size has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json of at most 151,936 ids")
    options = parser.parse_args(arguments)
    shape = SHAPES[options.size]
    if options.layers is not None:
        shape = Shape(options.layers, shape.hidden, shape.heads, shape.ffn, shape.kv_heads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = write_checkpoint(
        options.folder,
        shape,
        fp8=options.dtype == "fp8",
        seed=options.seed,
        device=device,
        tokenizer=options.tokenizer,
    )
    print(f"{options.folder}: {shape.layers} layers, {size / 2**30:.2f} GiB of {options.dtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
