"""What may be wrong with a model's files: mutations as plain data, so that a failure repeats.

A mutation is a dict that JSON can hold. Places are chosen by whole numbers, of which each
choice takes the remainder: any numbers are a mutation of any model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from hypothesis import strategies as st

from covey.models.gguf import GgufFile

# Numbers and types at which readers break, and words that mean something elsewhere in a model.
HOSTILE: list[Any] = [
    *(0, 1, -1, 2, 3, 7, 64, 127, 128, 1 << 20, 2**31 - 1, 2**31, 2**63, 2**64 - 1, 10**40),
    *(0.0, 0.5, -0.5, 1e-40, 1e30, 1e308, float("inf"), float("nan"), True, False, None),
    *("", "x", "0", "llama3", "yarn", "default", "F32", "F16", "I64", "BPE", "Unigram", "gpt-2"),
    *("../x", "\ud800", "a b", "Ġ", [], [0], [1, 2, 3], ["x"], {}, {"x": 1}, [[[]]]),
    *({"type": "ByteLevel"}, {"rope_type": "llama3"}, {"id": 0, "content": "x"}),
]
NEST = "@nest@"  # stands for more brackets than any parser takes
FOLDERS, FILES = ("llama", "qwen3", "shards"), ("llama.gguf", "qwen3.gguf")
BASES = FOLDERS + FILES
JSON_FILES = ("config.json", "tokenizer.json", "table", "model.safetensors.index.json")

_place = st.integers(0, 2**32 - 1)
_fields = st.fixed_dictionaries(
    {
        "kind": st.just("field"),
        "file": st.sampled_from(JSON_FILES),
        "path": st.lists(_place, min_size=4, max_size=4),
        "change": st.sampled_from(["set", "set", "set", "drop", "rename", "repeat", "nest", "add"]),
        "value": st.integers(0, len(HOSTILE) - 1),
    }
)
_keys = st.fixed_dictionaries(
    {
        "kind": st.just("key"),
        "place": _place,
        "change": st.sampled_from(["set", "set", "set", "drop", "add", "item"]),
        "type": st.sampled_from([0, 4, 5, 6, 7, 8, 10, 11, 12]),
        "value": st.integers(0, len(HOSTILE) - 1),
    }
)
_bytes = st.fixed_dictionaries(
    {
        "kind": st.just("bytes"),
        "file": _place,
        "header": st.booleans(),
        "place": _place,
        "change": st.sampled_from(["flip", "write", "insert", "remove", "cut", "zero", "double"]),
        "content": st.binary(min_size=1, max_size=9).map(bytes.hex)
        | st.sampled_from(["00000000", "ffffffff", "0000c07f", "0000807f", "ffff7f7f", "00000080"]),
    }
)


def _mutations(bases: tuple[str, ...], step: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    steps = st.lists(step | step | _bytes, min_size=1, max_size=2)
    return st.fixed_dictionaries({"base": st.sampled_from(bases), "steps": steps})


MUTATIONS = _mutations(FOLDERS, _fields) | _mutations(FILES, _keys)


def mutate(model: Path, mutation: dict[str, Any]) -> None:
    """Carry out a mutation on a copy of its base."""
    change = {"bytes": _change_bytes, "field": _change_json, "key": _change_key}
    for number, step in enumerate(mutation["steps"]):
        try:
            change[step["kind"]](model, step)
        except Exception:
            if not number:
                raise
            return  # what the first step left is nothing that the second could change


def _change_bytes(model: Path, step: dict[str, Any]) -> None:
    files = sorted(model.iterdir()) if model.is_dir() else [model]
    file = files[step["file"] % len(files)]
    content = bytearray(file.read_bytes())
    # Most bytes are weights, and most mistakes of a reader are about what comes before.
    at = step["place"] % (min(len(content), 2000 if step["header"] else len(content)) or 1)
    new = bytes.fromhex(step["content"])
    match step["change"]:
        case "flip":
            content[at : at + 1] = bytes([new[0] ^ byte for byte in content[at : at + 1]])
        case "write":
            content[at : at + len(new)] = new
        case "insert":
            content[at:at] = new
        case "remove":
            del content[at : at + len(new)]
        case "cut":
            del content[at:]
        case "zero":
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        case "double":
            content[at:at] = content[at : at + 64]
    file.write_bytes(content)


class Repeated(str):
    """A key that is another one's again."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _change_json(model: Path, step: dict[str, Any]) -> None:
    name = "model.safetensors" if step["file"] == "table" else step["file"]
    files = sorted(model.glob("*.safetensors")) if step["file"] == "table" else [model / name]
    file = files[step["path"][0] % len(files)]
    if not file.exists():
        return
    content, rest = file.read_bytes(), b""
    if step["file"] == "table":
        end = 8 + int.from_bytes(content[:8], "little")
        content, rest = content[8:end], content[end:]
    parsed = json.loads(content)
    _change_field(parsed, step)
    text = json.dumps(parsed).replace(f'"{NEST}"', "[" * 50_000 + "]" * 50_000).encode()
    length = len(text).to_bytes(8, "little") if step["file"] == "table" else b""
    file.write_bytes(length + text + rest)


def _change_field(parsed: Any, step: dict[str, Any]) -> None:
    inside, key = parsed, None
    for place in step["path"]:
        options = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        if not options:
            break
        above, key = inside, options[place % len(options)]
        inside = above[key]
        if not isinstance(inside, dict | list) or place % 5 == 0:
            break
    if key is None:
        return
    value = HOSTILE[step["value"]]
    match step["change"]:
        case "set":
            above[key] = value
        case "drop":
            del above[key]
        case "rename" if isinstance(above, dict):
            above[f"{key}_"] = above.pop(key)
        case "repeat" if isinstance(above, dict):
            above[Repeated(key)] = value
        case "nest":
            above[key] = NEST
        case "add" if isinstance(above, dict):
            above[f"{key}_new"] = value


def _change_key(model: Path, step: dict[str, Any]) -> None:
    """Write the file again with other metadata."""
    read = gguf.GGUFReader(model)
    file = GgufFile(model)
    keys = [key for key in file.metadata if not key.startswith("GGUF.")]
    chosen = keys[step["place"] % len(keys)]
    value, kind = HOSTILE[step["value"]], gguf.GGUFValueType(step["type"])
    writer = gguf.GGUFWriter(model, str(file.metadata["general.architecture"]))
    changed = dict(file.metadata)
    types = {key: read.fields[key].types for key in keys}
    match step["change"]:
        case "drop":
            del changed[chosen]
        case "item" if isinstance(changed[chosen], list) and changed[chosen]:
            at = step["place"] // len(keys) % len(changed[chosen])
            changed[chosen][at] = changed[chosen][at - 1]
        case "add":
            changed[f"{chosen}_new"], types[f"{chosen}_new"] = value, [kind]
        case _:
            changed[chosen], types[chosen] = value, [kind]
    writer.kv_data[0].clear()
    for key, new in changed.items():
        _write_key(writer, key, new, types[key])
    for tensor in read.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_key(writer: Any, key: str, value: Any, types: list[Any]) -> None:
    """One key, of the type wanted where the value can be of it."""
    kind = types[0]
    if isinstance(value, list) or kind == gguf.GGUFValueType.ARRAY:
        # What the writer takes: a list of one type, and of something.
        plain = isinstance(value, list) and len({type(item) for item in value}) == 1
        if plain and isinstance(value[0], int | float | str):
            writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY)
        return
    if kind == gguf.GGUFValueType.STRING:
        writer.add_key_value(key, str(value).encode(errors="replace").decode(), kind)
        return
    try:
        number = float(value) if kind in (6, 12) else int(value)
        if kind == 6 and 3e38 < abs(number) < float("inf"):
            return
        bits = {0: 8, 4: 32, 5: 31, 10: 64, 11: 63}.get(int(kind))
        number = number if bits is None else abs(number) % (1 << bits)
        writer.add_key_value(key, bool(number) if kind == 7 else number, kind)
    except (TypeError, ValueError, OverflowError):
        return
