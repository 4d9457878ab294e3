"""A loaded model on a device, which runs batches."""

from __future__ import annotations

import time
from typing import Generic, Protocol

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Float64, Int64
from covey.engine.labels import Wanted
from covey.engine.readout import AnswerTokens, margins
from covey.errors import ModelError
from covey.kernels.base import ForwardBatch, KvLayer, Plan
from covey.kernels.device_memory import upload
from covey.models.causal_lm import CausalLM


class Launched(Protocol):
    """A batch under way."""

    def result(self) -> tuple[Float64, float]:
        """Wait for it.

        Returns:
            (answers + wanted,) the margins in nats, then the wanted logits, all finite; and the
            seconds that the device took.

        Raises:
            ModelError: the model computed something else.
        """
        ...


class ModelRunner(Protocol):
    """What a session needs of a model: batches run in the order they are launched."""

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Launched:
        """Start a batch; returns at once where the device works by itself.

        Args:
            batch: what to run.
            wanted: logits to give besides the margins.
        """
        ...


class TorchRunner(Generic[Plan]):
    """Runs batches and reads margins and label logits.

    A GPU runs them one after another while the host packs the next, and the margins come
    back by a copy that an event follows. A CPU runs each at once: packing takes it less
    than a hundredth of the time, and a second thread would take cores from the model.

    Args:
        model: the decoder, its weights loaded.
        answers: the tokens whose logits make the margin.
        device: where the model's tensors lie.
        kv_cache: keys and values, a layer each; None where no batch reads or keeps any.
    """

    def __init__(
        self,
        model: CausalLM[Plan],
        answers: AnswerTokens,
        device: torch.device,
        kv_cache: list[KvLayer] | None = None,
    ) -> None:
        self._model = model
        self._true_count = len(answers.true)
        self._rows = torch.tensor(answers.true + answers.false, device=device)
        self._device = device
        self._kv_cache = kv_cache

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Launched:
        """See `ModelRunner.launch`."""
        if self._device.type == "cuda":
            return _OnGpu(self, batch, wanted)
        started = time.perf_counter()
        found = self.read(batch, wanted).double().numpy()
        return _Done(found, time.perf_counter() - started)

    def read(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Tensor:
        """What a batch gives, (answers + wanted,) float32, on the device.

        The answers' states are multiplied once, with the rows of the head that any of them
        wants; what each wants is gathered from the product.
        """
        if wanted is None:
            logits = self._model.logits(batch, self._rows, self._kv_cache)
            return margins(logits, self._true_count)
        count = len(self._rows)
        rows = torch.cat([self._rows, self._uploaded(wanted.tokens)])
        logits = self._model.logits(batch, rows, self._kv_cache)
        places = wanted.answers * len(rows) + wanted.columns + count
        chosen = logits.flatten()[self._uploaded(places)]
        return torch.cat([margins(logits[:, :count], self._true_count), chosen])

    def _uploaded(self, numbers: Int64) -> Tensor:
        return upload(torch.from_numpy(numbers), self._device)


class _Done:
    """A batch that has run."""

    def __init__(self, found: Float64, seconds: float) -> None:
        self._found = found
        self._seconds = seconds

    def result(self) -> tuple[Float64, float]:
        return _checked(self._found), self._seconds


class _OnGpu:
    """A batch that a GPU runs."""

    def __init__(
        self, runner: TorchRunner[Plan], batch: ForwardBatch, wanted: Wanted | None
    ) -> None:
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._begin.record()
        found = runner.read(batch, wanted)
        self._host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        self._host.copy_(found, non_blocking=True)
        self._end.record()

    def result(self) -> tuple[Float64, float]:
        self._end.synchronize()
        seconds = self._begin.elapsed_time(self._end) / 1000
        return _checked(self._host.double().numpy()), seconds


def _checked(found: Float64) -> Float64:
    """What a batch gave; ModelError where a number of it is none: no answer is made of that."""
    if not np.isfinite(found).all():
        raise ModelError(
            "The model computed a margin or logit that is no finite number: its weights are too"
            " large for its arithmetic. It cannot be used; fetch it again, or choose another."
        )
    return found
