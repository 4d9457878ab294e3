"""Folders of safetensors: what is read, and what is said of a damaged one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from covey.engine import LocalModel, load
from covey.errors import ModelError
from covey.models.files import ModelFiles
from covey.models.safetensors import SafetensorsCheckpoint
from models.tiny import make_model, write_folder

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("original"), make_model("qwen3", tied=True))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def change_weights(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    tensors = {key: value.clone() for key, value in load_file(path).items()}
    del tensors[name]
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, path)


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_shards_with_an_index_read_like_one_file(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    whole = SafetensorsCheckpoint(folder)
    expected = {n: whole.read(n, tuple(tensors[n].shape)) for n in names}
    index = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{number}.safetensors"
        save_file({n: tensors[n].clone() for n in part}, folder / file)
        index.update(dict.fromkeys(part, file))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    shards = SafetensorsCheckpoint(folder)
    for name in names:
        assert torch.equal(shards.read(name, tuple(tensors[name].shape)), expected[name])
    other = {**index, names[0]: index[names[1]]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": other}))
    with pytest.raises(ModelError, match=rf"names a tensor {names[0]} that model-00001"):
        SafetensorsCheckpoint(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "model-00001.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00001\.safetensors is missing"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("named", [5, None, [], {"a": 1}, "../x", "/x", "a/b", ""], ids=repr)
def test_an_index_names_files_of_its_folder(folder: Path, named: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": named}}))
    with pytest.raises(ModelError, match=r"points outside|is missing"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": None}, {"weight_map": []}, {"a": 1}])
def test_an_index_without_a_map_is_refused(folder: Path, index: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"weight_map"):
        SafetensorsCheckpoint(folder)


def rewrite_table(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:end])
    change(table)
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


def moved(table: dict[str, Any]) -> None:
    table[Q_PROJ]["data_offsets"] = table["model.layers.0.self_attn.q_proj.weight"]["data_offsets"]


TABLES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "overlap": (moved, "a tensor begins at byte"),
    "gap": (lambda t: t.pop(Q_PROJ), "a tensor begins at byte"),
    "no entry": (lambda t: t.update({Q_PROJ: None}), "says nothing of"),
    "a list": (lambda t: t.update({Q_PROJ: []}), "an object is needed"),
    "no dtype": (lambda t: t[Q_PROJ].pop("dtype"), "has no .*dtype"),
    "dtype": (lambda t: t[Q_PROJ].update(dtype="F31"), "one of BOOL"),
    "shape": (lambda t: t[Q_PROJ].update(shape=[2**40, 2**40]), "another number of bytes"),
    "negative": (lambda t: t[Q_PROJ].update(shape=[-128, -64]), "positive widths"),
    "many": (lambda t: t[Q_PROJ].update(shape=[1] * 10**6), "positive widths"),
    "offsets": (lambda t: t[Q_PROJ].update(data_offsets=[0]), "another number of bytes"),
    "backwards": (lambda t: t[Q_PROJ]["data_offsets"].reverse(), "another number of bytes"),
    "floats": (lambda t: t[Q_PROJ].update(data_offsets=[0.0, 8.0]), "a list of int"),
    "more": (lambda t: t[Q_PROJ].update(strides=[1]), "sets .*strides"),
    "format": (lambda t: t.update(__metadata__={"format": "tf"}), "written by PyTorch"),
}


@pytest.mark.parametrize("change", TABLES)
def test_a_table_that_does_not_fit_the_file_is_refused(folder: Path, change: str) -> None:
    rewrite_table(folder, TABLES[change][0])
    with pytest.raises(ModelError, match=TABLES[change][1]):
        SafetensorsCheckpoint(folder)


def test_missing_tensor_is_named(folder: Path) -> None:
    change_weights(folder, Q_PROJ, None)
    with pytest.raises(ModelError, match=f"has no tensor {Q_PROJ}"):
        load(folder)


def test_wrong_shape_is_named_with_both_shapes(folder: Path) -> None:
    change_weights(folder, Q_PROJ, torch.zeros(64, 128))
    with pytest.raises(ModelError, match=rf"{Q_PROJ} has shape \[64, 128\].*needs \[128, 64\]"):
        load(folder)


def test_wrong_dtype_is_named(folder: Path) -> None:
    change_weights(folder, Q_PROJ, torch.zeros(128, 64, dtype=torch.int8))
    with pytest.raises(ModelError, match=f"{Q_PROJ} is stored as int8"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 4, 200, 20_000])
def test_truncated_weights_name_the_file(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged or cut off"):
        load(folder)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin, which would have to be unpickled"):
        load(folder)


def test_index_may_not_point_outside_the_folder(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "../other.safetensors"}})
    )
    with pytest.raises(ModelError, match="points outside its folder"):
        load(folder)


def test_fp8_weights_on_a_cpu_say_what_to_use_instead(folder: Path) -> None:
    change_config(
        folder, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}
    )
    with pytest.raises(ModelError, match=r"need a GPU.*qwen3-0\.6b"):
        LocalModel(folder, device="cpu").open()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM; Covey runs"),
        ({"attention_bias": True}, "sets attention_bias = True"),
        ({"hidden_act": "gelu"}, "sets hidden_act = 'gelu'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "positions by 'yarn'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"dtype": "int4", "torch_dtype": "int4"}, "dtype 'int4'"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1; a positive number"),
    ],
)
def test_unsupported_configurations_are_refused_by_name(
    folder: Path, changes: dict[str, object], reason: str
) -> None:
    change_config(folder, **changes)
    with pytest.raises(ModelError, match=reason):
        _ = ModelFiles(folder).spec


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_and_broken_json_files_are_named(folder: Path, name: str) -> None:
    (folder / name).write_text('{"model": ')
    with pytest.raises(ModelError, match=f"{name} cannot be read"):
        _ = ModelFiles(folder).spec
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        _ = ModelFiles(folder).spec


def test_bfloat16_weights_are_widened_and_are_another_model(folder: Path, original: Path) -> None:
    tensors = {k: v.bfloat16() for k, v in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    change_config(folder, dtype="bfloat16")
    engine = load(folder)
    assert engine.name == "model"
    assert engine.fingerprint != load(original).fingerprint


def test_fingerprint_tells_layouts_and_weights_apart(folder: Path, original: Path) -> None:
    assert load(folder).fingerprint == load(original).fingerprint
    norm = load_file(folder / "model.safetensors")["model.norm.weight"]
    change_weights(folder, "model.norm.weight", norm + 1)
    assert load(folder).fingerprint != load(original).fingerprint
