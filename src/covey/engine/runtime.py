"""A loaded model on a device, which runs chunks."""

from __future__ import annotations

from typing import Generic

import numpy as np
import numpy.typing as npt
import torch

from covey.engine.readout import AnswerTokens, margins
from covey.kernels.base import Chunk, KvLayer, Plan
from covey.models.dense import DenseModel


class Runtime(Generic[Plan]):
    """Runs chunks and reads margins.

    Args:
        model: the decoder, its weights loaded.
        answers: the tokens whose logits make the margin.
        device: where the model's tensors lie.
    """

    def __init__(
        self, model: DenseModel[Plan], answers: AnswerTokens, device: torch.device
    ) -> None:
        self._model = model
        self._true_count = len(answers.true)
        self._rows = torch.tensor(answers.true + answers.false, device=device)

    def margins(self, chunk: Chunk, arena: list[KvLayer] | None = None) -> npt.NDArray[np.float64]:
        """Margins at the answer rows of a chunk, (a,) in nats."""
        logits = self._model.logits(chunk, self._rows, arena)
        found = margins(logits, self._true_count).double().cpu().numpy()
        return np.asarray(found, dtype=np.float64)
