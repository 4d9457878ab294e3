"""Models on this machine: named, described, and loaded when they are needed.

Importing this module, and asking for a spec or a tokenizer, brings in no torch.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from covey.engine.base import Engine, ModelSource
from covey.models.files import ModelFiles
from covey.models.registry import find_known, is_path, local_path, model_files
from covey.models.spec import ModelSpec
from covey.prompts.layout import DEFAULT_LAYOUT
from covey.prompts.question import QuestionKind

if TYPE_CHECKING:
    from covey.models.tokenizer import TextEncoder


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

    @property
    def kinds(self) -> frozenset[QuestionKind]:
        """The kinds of question it can answer: judgements, no classifications yet."""
        return frozenset({QuestionKind.JUDGE})

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


def load(source: str | Path | ModelSource) -> Engine:
    """Load a model: a known name, a path, or a source already.

    Raises:
        ModelError: it cannot be found, read, or run on this machine.
    """
    return LocalModel(source).open() if isinstance(source, str | Path) else source.open()
