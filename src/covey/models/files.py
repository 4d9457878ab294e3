"""A model on disk: one GGUF file, or a folder of safetensors. No torch here."""

from __future__ import annotations

import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from covey.errors import ModelError
from covey.models.checkpoint import Checkpoint, check_tensors
from covey.models.config import spec_from_folder
from covey.models.fields import Fields
from covey.models.gguf import GgufCheckpoint, GgufFile
from covey.models.gguf_spec import spec_from_gguf
from covey.models.spec import ModelSpec

if TYPE_CHECKING:
    from covey.models.tokenizer import TextEncoder


class ModelFiles:
    """What can be known of a model without loading its weights.

    Args:
        path: a .gguf file, or a folder with config.json, tokenizer.json and safetensors.

    Raises:
        ModelError: the path is neither.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist.") from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise ModelError(f"{path} cannot be read: {error}.") from error
        self._is_file = not stat.S_ISDIR(mode)
        if self._is_file and path.suffix != ".gguf":
            raise ModelError(
                f"{path} is neither a .gguf file nor a model folder. Covey reads weights from"
                " GGUF and safetensors only."
            )

    @cached_property
    def gguf(self) -> GgufFile | None:
        """The opened file, None for a folder."""
        return GgufFile(self.path) if self._is_file else None

    @cached_property
    def spec(self) -> ModelSpec:
        """The model's shape; ModelError where it is damaged or of no known kind."""
        file = self.gguf
        return spec_from_folder(self.path) if file is None else spec_from_gguf(file)

    @cached_property
    def encoder(self) -> TextEncoder:
        """The model's tokenizer; ModelError where it is damaged or not that of the weights."""
        # `import covey` must stay light; the tokenizer library is needed from here on.
        from covey.models.tokenizer import encoder_from_file, encoder_from_gguf

        file = self.gguf
        if file is None:
            return encoder_from_file(self.path / "tokenizer.json", self.spec.vocab)
        fields = Fields(file.metadata, self.path, "tokenizer.ggml.", " in its metadata")
        model = fields.text("model")
        if model != "gpt2":
            raise ModelError(
                f"{self.path} holds a {model!r} tokenizer; Covey builds byte-level BPE ('gpt2')"
                " from GGUF. Use the model's safetensors folder."
            )
        return encoder_from_gguf(
            fields.items("tokens", str),
            fields.items("token_type", int),
            fields.items("merges", str),
            fields.text("pre"),
            self.path,
        )

    def checkpoint(self) -> Checkpoint:
        """The weights, opened; ModelError where they are missing, damaged, or not the spec's."""
        # It imports torch.
        from covey.models.safetensors import SafetensorsCheckpoint

        file = self.gguf
        opened: Checkpoint
        if file is None:
            opened = SafetensorsCheckpoint(self.path)
        else:
            opened = GgufCheckpoint(file, self.spec)
        check_tensors(self.spec, opened.tensors, opened.path)
        return opened
