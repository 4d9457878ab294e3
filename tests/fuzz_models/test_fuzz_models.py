"""Thousands of damaged and hostile models: each is refused by a ModelError, or answers right."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, note
from safetensors.torch import load_file, save_file

from differential.harness import fuzz
from fuzz_models.mutations import BASES, HOSTILE, MUTATIONS
from models.tiny import make_model, write_folder, write_gguf

PATIENCE = 120  # seconds until a worker is taken for hanging, on a machine that does much else
TESTS = Path(__file__).parents[1]


class Worker:
    """A process that loads models; a new one after one that has died."""

    def __init__(self, bases: Path) -> None:
        self._bases = bases
        self._process: subprocess.Popen[str] | None = None

    def load(self, mutation: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fuzz_models.worker", str(self._bases)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=TESTS,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(mutation) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return {"kind": "died" if ready else "hangs"}
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    llama = make_model("llama", tied=False, **shape)
    qwen3 = make_model("qwen3", tied=True, **shape)
    write_folder(folder / "llama", llama)
    write_folder(folder / "qwen3", qwen3)
    write_gguf(folder / "llama.gguf", llama)
    write_gguf(folder / "qwen3.gguf", qwen3)
    shards = write_folder(folder / "shards", llama)
    tensors = load_file(shards / "model.safetensors")
    (shards / "model.safetensors").unlink()
    where = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(where.values()):
        part = {name: tensor for name, tensor in tensors.items() if where[name] == file}
        save_file(part, shards / file, {"format": "pt"})
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))
    return folder


@pytest.fixture(scope="module")
def worker(bases: Path) -> Iterator[Worker]:
    started = Worker(bases)
    yield started
    started.close()


@pytest.fixture(scope="module")
def right(worker: Worker) -> dict[str, dict[str, Any]]:
    """What the models give as they are."""
    return {base: worker.load({"base": base, "steps": []}) for base in BASES}


@fuzz(1.0)
@given(mutation=MUTATIONS)
def test_every_mutated_model_is_refused_or_answers(
    worker: Worker, right: dict[str, dict[str, Any]], mutation: dict[str, Any]
) -> None:
    found = worker.load(mutation)
    note(found.get("trace") or str(found))
    for step in mutation["steps"]:
        note(f"{step} {HOSTILE[step['value']]!r}" if "value" in step else str(step))
    event(found["kind"])
    assert found["kind"] in ("refused", "loaded")
    known = right[mutation["base"]]
    if found.get("fingerprint") == known["fingerprint"]:
        assert found["margins"] == known["margins"], "one name for two models"
