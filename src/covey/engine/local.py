"""Models on this machine: named, described, and loaded when they are needed.

Importing this module, and asking for a spec or a tokenizer, brings in no torch.
"""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from covey.engine.base import Engine, ModelSource
from covey.errors import InputError
from covey.hardware.devices import has_nvidia_gpu
from covey.models.files import ModelFiles
from covey.models.registry import find_known, is_path, local_path, model_files
from covey.models.spec import ModelSpec
from covey.prompts.layout import DEFAULT_LAYOUT

if TYPE_CHECKING:
    from covey.models.tokenizer import TextEncoder

GPU_DEFAULT = "qwen3-4b-fp8"
CPU_DEFAULT = "qwen3-0.6b"


class LocalModel:
    """A model that is not loaded yet.

    Args:
        source: a known name, the path of a .gguf file, or of a folder with config.json,
            tokenizer.json and safetensors.
        device: "cpu" or "cuda"; None takes the GPU where there is one.
        layout: name of the prompt layout.

    Attributes:
        name: the known name, or the file's or folder's own.

    Raises:
        ModelError: the source is neither a known name nor a path.
    """

    def __init__(
        self, source: str | Path, *, device: str | None = None, layout: str = DEFAULT_LAYOUT
    ) -> None:
        self._source = source
        self.device = device
        self.layout = layout
        self._known = None if is_path(source) else find_known(str(source))
        self.name = Path(source).stem if self._known is None else self._known.name

    @cached_property
    def files(self) -> ModelFiles:
        """The model's files, fetched where they must be; ModelError where they cannot."""
        return model_files(self._source)

    @property
    def spec(self) -> ModelSpec:
        """The model's shape, without a download where it is known by name."""
        known = self._known
        if known is not None and known.spec is not None and local_path(known) is None:
            return known.spec
        return self.files.spec

    @property
    def encoder(self) -> TextEncoder:
        """The model's tokenizer."""
        return self.files.encoder

    def open(self) -> Engine:
        """Load the weights; see `ModelSource.open`."""
        from covey.engine.loaded import load_engine

        return load_engine(self.name, self.files, self.device, self.layout)


def model_source(model: str | PathLike[str] | ModelSource | None) -> ModelSource:
    """What a user may name as a model, as something that can be opened.

    Args:
        model: a known name, a path, a source already, or None for this machine's default.

    Raises:
        ModelError: neither a known name nor a path.
        InputError: an object that cannot be opened.
    """
    if model is None:
        return LocalModel(GPU_DEFAULT if has_nvidia_gpu() else CPU_DEFAULT)
    if isinstance(model, str):
        return LocalModel(model)
    if isinstance(model, PathLike):
        return LocalModel(Path(model))
    if not callable(getattr(model, "open", None)):
        raise InputError(
            f"A {type(model).__name__} is no model. Give a name that `covey models` lists, a"
            " path, or a covey.testing.PlantedModel."
        )
    return model


def load(model: str | PathLike[str] | ModelSource | None = None) -> Engine:
    """Load a model; arguments and errors as `model_source`.

    Raises:
        ModelError: it cannot be found, read, or run on this machine.
    """
    return model_source(model).open()
