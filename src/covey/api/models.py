"""From what a user names to a model source."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from covey.engine.base import ModelSource
from covey.engine.local import LocalModel
from covey.errors import InputError
from covey.hardware.devices import has_cuda

GPU_DEFAULT = "qwen3-4b-fp8"
# Small enough for two cores.
CPU_DEFAULT = "qwen3-0.6b"


def model_source(model: Any) -> ModelSource:
    """The source for `connect(model=…)`.

    Raises:
        InputError: the argument is of no kind that names a model.
        ModelError: there is no such model.
    """
    if model is None:
        return LocalModel(GPU_DEFAULT if has_cuda() else CPU_DEFAULT)
    if isinstance(model, str | PathLike):
        return LocalModel(fspath(model))
    if callable(getattr(model, "open", None)) and hasattr(model, "name"):
        source: ModelSource = model
        return source
    raise InputError(
        f"A model is a name, a path or a PlantedModel, not of type {type(model).__name__}. "
        "`covey models` lists the names."
    )
