"""From what a user names to a model source."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

from covey.engine.base import ModelSource
from covey.engine.local import LocalModel
from covey.errors import InputError, ModelError
from covey.hardware.devices import has_cuda
from covey.models.files import ModelFiles
from covey.models.registry import is_path, is_there, user_path

GPU_DEFAULT = "qwen3-4b-fp8"
# Small enough for two cores.
CPU_DEFAULT = "qwen3-0.6b"


def model_source(model: Any, fast: str | Iterable[str] = ()) -> ModelSource:
    """The source for `connect(model=…, fast=…)`.

    Raises:
        InputError: the argument is of no kind that names a model, or `fast` names nothing
            known or stands beside a model that says itself how it is computed.
        ModelError: there is no such model, or a path holds none.
    """
    if model is None:
        return LocalModel(GPU_DEFAULT if has_cuda() else CPU_DEFAULT, fast=fast)
    if isinstance(model, str | PathLike):
        source = LocalModel(fspath(model), fast=fast)
        if is_path(fspath(model)):
            # Refused when the user names it, and not at the first query.
            path = user_path(fspath(model))
            if not is_there(path):
                raise ModelError(
                    f"There is no model at {path}. Name a .gguf file, a folder with safetensors, "
                    "or one of the names that `covey models` lists."
                )
            ModelFiles(path)
        return source
    if fast:
        raise InputError(
            f"fast is for a model by its name or path, not for one of type {type(model).__name__}."
            " Leave it out."
        )
    if callable(getattr(model, "open", None)) and hasattr(model, "name"):
        given: ModelSource = model
        return given
    raise InputError(
        f"A model is a name, a path or a PlantedModel, not of type {type(model).__name__}. "
        "`covey models` lists the names."
    )
