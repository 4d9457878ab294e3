"""GGUF files: what is read, and what is said of a damaged one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from covey.errors import ModelError
from covey.models.files import ModelFiles
from covey.models.gguf import GgufCheckpoint, GgufFile
from covey.models.registry import KNOWN_MODELS

ENTRY = struct.pack("<QcIQIQ", 1, b"a", 1, 1, 0, 0)
Q4_1 = gguf.GGMLQuantizationType.Q4_1


def write(path: Path, **changes: Any) -> Path:
    """A small file with a float, a half and a 4-bit tensor; None leaves a key out."""
    writer = gguf.GGUFWriter(path, "llama")
    keys = {
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "general.file_type": 3,
        **changes,
    }
    for key, value in keys.items():
        if value is not None:
            writer.add_uint32(key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "é"])
    writer.add_array("some.flags", [True, False])
    rng = np.random.default_rng(0)
    writer.add_tensor("plain", rng.standard_normal((3, 5)).astype(np.float32))
    writer.add_tensor("half", rng.standard_normal((2, 3)).astype(np.float16))
    packed = quantize(rng.standard_normal((4, 64)).astype(np.float32), Q4_1)
    writer.add_tensor("packed", packed, raw_dtype=Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def opened(path: Path) -> GgufCheckpoint:
    """The tensors of a file, whatever its metadata say."""
    spec = KNOWN_MODELS[-1].spec
    assert spec is not None
    return GgufCheckpoint(GgufFile(path), spec)


def test_metadata_and_tensors_come_back_as_written(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    file, tensors = GgufFile(path), opened(path)
    assert file.metadata["llama.context_length"] == 64
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b", "é"]
    assert file.metadata["some.flags"] == [True, False]
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(tensors.read("plain", (3, 5)), plain)
    half = rng.standard_normal((2, 3)).astype(np.float16)
    np.testing.assert_array_equal(tensors.read("half", (2, 3)), half.astype(np.float32))
    packed = quantize(rng.standard_normal((4, 64)).astype(np.float32), Q4_1)
    np.testing.assert_array_equal(tensors.read("packed", (4, 64)), dequantize(packed, Q4_1))


def test_fingerprint_changes_with_a_weight_and_not_with_the_place(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    data = path.read_bytes()
    (tmp_path / "copy.gguf").write_bytes(data)
    (tmp_path / "other.gguf").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    prints = [GgufFile(tmp_path / n).fingerprint() for n in ("m.gguf", "copy.gguf", "other.gguf")]
    assert prints[0] == prints[1] != prints[2]


def test_missing_tensor_and_wrong_shape_name_file_and_tensor(tmp_path: Path) -> None:
    file = opened(write(tmp_path / "m.gguf"))
    with pytest.raises(ModelError, match=r"m\.gguf has no tensor blk\.0\.attn_q\.weight"):
        file.read("blk.0.attn_q.weight", (1, 1))
    with pytest.raises(
        ModelError, match=r"tensor plain has shape \[3, 5\], the model needs \[5, 3"
    ):
        file.read("plain", (5, 3))


def test_every_truncation_is_a_model_error(tmp_path: Path) -> None:
    data = write(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, len(data) - 80, 13), len(data) - 80]:
        cut.write_bytes(data[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            opened(cut).read("packed", (4, 64))


def test_cut_off_weights_say_where_the_tensor_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-80])
    with pytest.raises(ModelError, match="is cut off: tensor packed ends at byte"):
        opened(path).read("packed", (4, 64))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 and so on", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "reads little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "is damaged"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**50), "is damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + 2 * ENTRY, "has two tensors a"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "keys and"),
    ],
)
def test_what_is_no_gguf_file_is_said_plainly(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        GgufFile(path)


def test_unknown_tensor_type_names_the_tensor(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    at = data.index(b"packed") + len(b"packed") + 4 + 2 * 8
    data[at : at + 4] = struct.pack("<I", 999)
    path.write_bytes(data)
    with pytest.raises(ModelError, match="tensor packed is stored as type 999"):
        opened(path).read("packed", (4, 64))


def test_missing_key_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", **{"llama.block_count": None})
    with pytest.raises(ModelError, match=r"has no llama\.block_count in its metadata"):
        _ = ModelFiles(path).spec


def test_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_uint32("mamba.block_count", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="architecture mamba; Covey runs llama, qwen3"):
        _ = ModelFiles(tmp_path / "m.gguf").spec


def spoiled(path: Path, text: bytes, at: int, content: bytes) -> Path:
    """A file with other bytes so far behind the first place of a text."""
    data = bytearray(path.read_bytes())
    start = data.index(text) + len(text) + at
    data[start : start + len(content)] = content
    path.write_bytes(data)
    return path


HEADERS = {
    "a width of none": (b"plain", 4, struct.pack("<Q", 0), "tensor plain has no weights"),
    "a width of all": (b"plain", 4, struct.pack("<Q", 2**63), "tensor plain ends at byte"),
    "no dimension": (b"plain", 0, struct.pack("<I", 0), "plain has 0 dimensions"),
    "dimensions": (b"plain", 0, struct.pack("<I", 2**31), "dimensions"),
    "overlap": (b"half", 4 + 2 * 8 + 4, struct.pack("<Q", 0), "within tensor"),
    "unaligned": (b"half", 4 + 2 * 8 + 4, struct.pack("<Q", 65), "at no multiple of 32"),
    "behind the file": (b"packed", 24, struct.pack("<Q", 2**40), "is cut off: tensor packed ends"),
    "nested lists": (b"some.flags", 4, struct.pack("<I", 9), "values of type 9"),
    "a long list": (b"some.flags", 8, struct.pack("<Q", 2**62), "a list of"),
    "a long text": (b"general.architecture", 4, struct.pack("<Q", 2**62), "header ends"),
    "a text of none": (b"general.architecture", 12, b"\xff", "a text of it is none"),
    "a value of no type": (b"general.architecture", 0, struct.pack("<I", 99), "type 99"),
}


@pytest.mark.parametrize("change", HEADERS)
def test_a_header_that_does_not_fit_the_file_is_refused(tmp_path: Path, change: str) -> None:
    text, at, content, reason = HEADERS[change]
    path = spoiled(write(tmp_path / "m.gguf"), text, at, content)
    with pytest.raises(ModelError, match=reason):
        opened(path).read("plain", (3, 5))


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"llama.context_length", b"general.architecture"))
    with pytest.raises(ModelError, match=r"says general\.architecture twice"):
        GgufFile(path)


COUNTS = ["block_count", "context_length", "embedding_length", "feed_forward_length"]
COUNTS += ["attention.head_count", "attention.head_count_kv"]


@pytest.mark.parametrize("key", COUNTS)
def test_counts_of_nothing_are_refused(tmp_path: Path, key: str) -> None:
    path = write(tmp_path / "m.gguf", **{f"llama.{key}": 0})
    with pytest.raises(ModelError, match=rf"holds llama\.{key} = 0; a positive number"):
        _ = ModelFiles(path).spec


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("llama.attention.sliding_window", 4, "which Covey does not compute"),
        ("llama.expert_count", 8, "which Covey does not compute"),
        ("llama.something_new", 1, "which Covey does not compute"),
        ("llama.rope.dimension_count", 16, "by the other keys it is 32"),
        ("llama.attention.value_length", 16, "by the other keys it is 32"),
        ("llama.vocab_size", 4, "by the other keys it is 3"),
        ("llama.attention.key_length", 7, "cannot be rotated"),
        ("tokenizer.ggml.add_eos_token", 1, "which Covey does not compute"),
        ("general.alignment", 0, "multiples of 0 bytes"),
    ],
)
def test_what_metadata_ask_for_is_done_or_refused(
    tmp_path: Path, key: str, value: int, reason: str
) -> None:
    path = write(tmp_path / "m.gguf", **{key: value})
    with pytest.raises(ModelError, match=rf"{reason}"):
        _ = ModelFiles(path).spec


def test_windows_as_wide_as_the_context_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", **{"llama.attention.sliding_window": 64})
    assert ModelFiles(path).spec.context == 64
