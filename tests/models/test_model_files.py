"""Model files as what they are: anyone's input, on a disk that may fail at any step."""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import covey
from covey.engine import load, loaded
from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel
from covey.errors import ModelError
from covey.hardware.devices import memory_bytes
from covey.kernels.base import AttentionConfig
from covey.kernels.reference import ReferenceKernels
from covey.models import file_reader
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from models.batches import prompts_batch, random_ids
from models.tiny import VOCAB, make_model, plain_logits, write_folder, write_gguf

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def theirs() -> Any:
    return make_model("llama", tied=True, num_hidden_layers=2, max_position_embeddings=256)


@pytest.fixture(scope="module")
def originals(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("originals")
    return {
        "folder": write_folder(folder / "model", theirs),
        "gguf": write_gguf(folder / "model.gguf", theirs),
    }


@pytest.fixture(params=["folder", "gguf"])
def path(request: pytest.FixtureRequest, originals: dict[str, Path], tmp_path: Path) -> Path:
    """A model that a test may spoil."""
    original = originals[request.param]
    copy = shutil.copytree if original.is_dir() else shutil.copyfile
    return Path(copy(original, tmp_path / original.name))


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["folder"], tmp_path / "model"))


def weights_of(path: Path) -> Path:
    return path if path.is_file() else path / "model.safetensors"


def fingerprint(path: Path) -> str:
    """That of the files alone, read as loading reads them."""
    files = ModelFiles(path)
    checkpoint = files.checkpoint()
    load_weights(files.spec, checkpoint, CPU, torch.float32)
    return checkpoint.fingerprint()


def test_gguf_gives_the_logits_of_transformers(path: Path, theirs: Any) -> None:
    files = ModelFiles(path)
    spec = files.spec
    shape = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    weights = load_weights(spec, files.checkpoint(), CPU, torch.float32)
    ids = random_ids(40, VOCAB, seed=1)
    found = CausalLM(spec, weights, ReferenceKernels(shape, CPU, torch.float32)).logits(
        prompts_batch([ids]), None
    )
    torch.testing.assert_close(found[0], plain_logits(theirs, ids), atol=1e-4, rtol=0)


def test_every_byte_is_in_the_fingerprint(path: Path) -> None:
    """The middle of a tensor like its ends; size and time of change are as they were."""
    file = weights_of(path)
    whole, first, times = file.read_bytes(), fingerprint(path), file.stat()
    assert fingerprint(path) == first
    names = set()
    places = range(11, len(whole), len(whole) // 40)
    for at in places:
        changed = bytearray(whole)
        changed[at] ^= 1
        file.write_bytes(changed)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            names.add(fingerprint(path))
        except ModelError:  # of the header
            names.add(str(at))
    assert len(names) == len(places) and first not in names


def test_the_fingerprint_does_not_depend_on_what_was_read_before(path: Path) -> None:
    files = ModelFiles(path)
    unread = files.checkpoint().fingerprint()
    assert unread == fingerprint(path)


def test_bytes_of_no_tensor_are_in_the_fingerprint(originals: dict[str, Path], tmp_path: Path):
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(originals["gguf"].read_bytes() + b"\0")
    assert fingerprint(longer) != fingerprint(originals["gguf"])


def test_no_thread_is_left_that_a_fork_would_lose(path: Path) -> None:
    def hashing() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "covey-read" in thread.name]

    files = ModelFiles(path)
    assert files.spec and files.encoder and not hashing()
    assert LocalModel(path).open().fingerprint and not hashing()


def test_large_pieces_are_hashed_like_small_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = weights_of(path)
    size = file.stat().st_size
    for block in (1000, size + 1):
        monkeypatch.setattr(file_reader, "_BLOCK", block)
        read, digested = file_reader.WeightFile(file), file_reader.WeightFile(file)
        assert read.read(3, size - 5).tobytes() == file.read_bytes()[3:-5]
        assert read.digest(3, size - 5) == digested.digest(3, size - 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_no_numbers_are_refused(
    folder: Path, value: float, dtype: torch.dtype
) -> None:
    path = folder / "model.safetensors"
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = {key: tensor.to(dtype) for key, tensor in load_file(path).items()}
    tensors[name][5, 7] = value
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ModelError, match=rf"tensor {name} holds weights that are no finite"):
        load(folder)


def test_tokens_that_the_model_lacks_are_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text())
    spec["model"]["vocab"]["TRUE"] = VOCAB
    path.write_text(json.dumps(spec))
    with pytest.raises(ModelError, match=r"tokenizer\.json has a token 512, and the model 512"):
        load(folder)


def test_a_second_head_must_be_the_embedding_that_it_is_tied_to(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    before = load(folder).fingerprint
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, path)
    assert load(folder).fingerprint != before
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, path)
    with pytest.raises(ModelError, match=r"ties lm_head\.weight to .* different tensors"):
        load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.2.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.sinks",
    ],
)
def test_tensors_that_are_not_computed_with_are_refused(folder: Path, name: str) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), name: torch.ones(4)}, path)
    with pytest.raises(ModelError, match=rf"holds a tensor {name}, which Covey does not"):
        load(folder)


def test_tables_of_rotary_positions_are_no_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**load_file(path), name: torch.ones(4)}, path)
    assert load(folder).fingerprint


SPOILS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a folder": (lambda file: file.mkdir(), "no regular file|Is a directory|is not a model folder"),
    "a looped link": (lambda file: file.symlink_to(file.name), "symbolic links|cannot be read"),
    "a link to nothing": (lambda file: file.symlink_to("gone"), "is missing|does not exist"),
    "a named pipe": (lambda file: os.mkfifo(file), "no regular file"),
    "a device": (lambda file: file.symlink_to("/dev/zero"), "no regular file"),
    "nothing": (lambda file: file.write_bytes(b""), r"damaged|not a GGUF file"),
    "nothing but zeros": (lambda file: file.write_bytes(bytes(5000)), r"cannot be|not a GGUF"),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_no_file_of_weights_is_refused_at_once(path: Path, spoil: str) -> None:
    file = weights_of(path)
    file.unlink()
    change, reason = SPOILS[spoil]
    change(file)
    with pytest.raises(ModelError, match=reason):
        load(path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_any_file_of_a_folder_may_be_a_pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match=rf"{name} is no regular file"):
        load(folder)


def test_names_that_no_file_can_have_are_refused() -> None:
    for name in ("x" * 5000 + ".gguf", "./a\0b.gguf"):
        with pytest.raises(ModelError, match="cannot be read"):
            load(name)
    for name in ("x" * 5000, "a\0b", "~nobody-of-that-name/x", Path("x" * 300)):
        for use in (load, covey.connect):
            with pytest.raises(ModelError):
                use(name)


def test_a_path_may_begin_with_the_users_folder(
    originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(originals["folder"].parent))
    covey.connect("~/model.gguf").close()
    assert load("~/model").fingerprint


def test_weights_larger_than_the_machine_are_refused(folder: Path) -> None:
    """A sparse file takes no room on the disk, and would take all of the memory."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    rows = (memory_bytes() or 1 << 40) // (64 * 4) + 1
    table = json.loads(content[8:start])
    del table["__metadata__"]
    table["model.embed_tokens.weight"] |= {"shape": [rows, 64]}
    at = 0
    for entry in table.values():
        size = 4 * math.prod(entry["shape"])
        entry["data_offsets"] = [at, at := at + size]
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + at)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    with pytest.raises(ModelError, match=r"weights need .* GiB of memory as FP32"):
        load(folder)


def test_memory_that_ends_is_said_with_the_mend() -> None:
    program = (
        "import resource, sys, torch; torch.set_num_threads(1);"
        "from covey.engine.loaded import load_engine; from covey.models.registry import *;"
        "files = model_files('smollm2-135m'); files.encoder;"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096;"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2);"
        "load_engine('m', files, 'cpu', 'raw-v1')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "covey.errors.ModelError: There is not enough memory to load" in ended.stderr


# What may go wrong at every step of reading: the step's real outcome, or this.
def _short(file: Any, out: memoryview) -> int:
    return 0


def _failing(code: int) -> Callable[[Any, memoryview], int]:
    def fail(file: Any, out: memoryview) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def _interrupted(file: Any, out: memoryview) -> int:
    raise KeyboardInterrupt


def _without_memory(file: Any, out: memoryview) -> int:
    raise MemoryError


FAULTS = {
    "cut off": _short,
    "EIO": _failing(errno.EIO),
    "ESTALE": _failing(errno.ESTALE),
    "interrupt": _interrupted,
    "memory": _without_memory,
}


class FaultyReads:
    """Counts the steps of reading; lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.at = -1
        self.fault = _short
        injector = self

        real = os.preadv

        def preadv(file: int, buffers: list[memoryview], start: int) -> int:
            [out] = buffers
            injector.steps += 1
            if injector.steps - 1 == injector.at:
                return injector.fault(file, out)
            # Half of what is asked for: the rest is another step.
            return real(file, [out[: max(1, len(out) // 2)] if len(out) > 4096 else out], start)

        monkeypatch.setattr(os, "preadv", preadv)

    def arm(self, at: int, fault: Callable[[Any, memoryview], int]) -> None:
        self.steps, self.at, self.fault = 0, at, fault


def loaded_engine(source: LocalModel) -> LoadedEngine:
    return loaded.load_engine("m", source.files, "cpu", source.layout)


def open_files() -> int:
    gc.collect()
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


def test_a_fault_at_any_step_of_reading_is_said_and_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalModel, "_keep_facts", lambda self, engine: None)
    expected = LocalModel(path).open().fingerprint
    reads = FaultyReads(monkeypatch)
    reads.arm(-1, _short)
    assert LocalModel(path).open().fingerprint == expected
    steps = reads.steps
    assert steps > 30
    source = LocalModel(path)
    before = open_files()
    for number, (name, fault) in enumerate(FAULTS.items()):
        for at in range(number, steps, len(FAULTS)):
            reads.arm(at, fault)
            kind = KeyboardInterrupt if name == "interrupt" else ModelError
            with pytest.raises(kind):
                source.open()
    reads.arm(-1, _short)
    assert source.open().fingerprint == expected
    assert open_files() <= before + 2


def test_a_file_that_changes_while_it_is_read_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, done = weights_of(path), []
    real = file_reader.read_exactly

    def changing(source: Any, start: int, out: memoryview, name: Path) -> None:
        real(source, start, out, name)
        if name == file and len(out) > 8192 and not done:
            done.append(True)
            with file.open("r+b") as other:
                other.seek(-4, 2)
                other.write(b"\1\2\3\4")

    monkeypatch.setattr(file_reader, "read_exactly", changing)
    source = LocalModel(path)
    with pytest.raises(ModelError, match="was changed while it was read"):
        source.open()
    assert source.open().fingerprint


def test_a_file_that_shrinks_while_it_is_read_ends_no_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = weights_of(path)
    real = file_reader.read_exactly

    def shrinking(source: Any, start: int, out: memoryview, name: Path) -> None:
        real(source, start, out, name)
        if name == file and len(out) > 8192:
            os.truncate(file, 4096)

    monkeypatch.setattr(file_reader, "read_exactly", shrinking)
    with pytest.raises(ModelError, match=r"damaged or cut off|was changed"):
        LocalModel(path).open()


def test_files_that_changed_since_they_were_described_are_read_again(
    originals: dict[str, Path], path: Path
) -> None:
    """A plan reads the description long before a query needs the weights."""
    source = LocalModel(path)
    assert source.spec.context == 256
    other = make_model("llama", tied=True, num_hidden_layers=2, max_position_embeddings=128)
    if path.is_dir():
        write_folder(path, other)
    else:
        write_gguf(path, other)
    engine = source.open()
    assert source.spec.context == 128 and engine.limits.context == 128
