"""Models on this machine: named, described, and loaded when they are needed.

Importing this module, and asking for a spec or a tokenizer, brings in no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from covey.engine.base import Engine, ModelSource
from covey.engine.identity import file_signature, load_fingerprint, save_fingerprint
from covey.engine.limits import Limits, cpu_limits, gpu_limits
from covey.engine.questions import TokenMeasure
from covey.estimate.profile import ByteMeasure, Measure, ModelProfile
from covey.estimate.rates import read_rates, write_rates
from covey.hardware.devices import Device, has_cuda, present_device
from covey.kernels.fast import EXACT, Fast, read_fast
from covey.models.files import ModelFiles
from covey.models.registry import find_known, is_path, local_path, model_files
from covey.models.spec import ModelCosts, ModelSpec, WeightDtype, costs_of
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS
from covey.prompts.question import QuestionKind

if TYPE_CHECKING:
    from covey.engine.loaded import LoadedEngine
    from covey.models.tokenizer import TextEncoder


class LocalModel:
    """A model that is not loaded yet.

    Args:
        source: a known name, the path of a .gguf file, or of a folder with config.json,
            tokenizer.json and safetensors.
        device: "cpu" or "cuda"; None takes the GPU where there is one.
        layout: name of the prompt layout.
        fast: what may cost exactness: names in `covey.kernels.fast.FAST_NAMES`.

    Attributes:
        name: the known name, or the file's or folder's own.

    Raises:
        ModelError: the source is neither a known name nor a path.
        InputError: `fast` names nothing known.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        device: str | None = None,
        layout: str = DEFAULT_LAYOUT,
        fast: str | Iterable[str] = (),
    ) -> None:
        self.fast = read_fast(fast)
        self._source = source
        self._before: str | None = None
        self.device = device
        self.layout = layout
        self._known = None if is_path(source) else find_known(str(source))
        self.name = Path(source).stem if self._known is None else self._known.name

    @property
    def kinds(self) -> frozenset[QuestionKind]:
        """The kinds of question it can answer."""
        return frozenset(QuestionKind)

    @cached_property
    def files(self) -> ModelFiles:
        """The model's files, fetched where they must be; ModelError where they cannot."""
        files = model_files(self._source)
        self._before = file_signature(files.path)  # before anything of them is read
        return files

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

        if file_signature(self.files.path) != self._before:
            self._forget_files()
        try:
            engine = load_engine(self.name, self.files, self.device, self.layout, self.fast)
        except BaseException:
            self._forget_files()
            raise
        self._keep_facts(engine)
        return engine

    def _forget_files(self) -> None:
        """What was read of files that have changed, or cannot be loaded, is read again."""
        self.__dict__.pop("files", None)

    def _keep_facts(self, engine: LoadedEngine) -> None:
        """Measure how fast a loaded model is here, once for a device and kernels, and name it."""
        on_gpu = has_cuda() if self.device is None else self.device == "cuda"
        device = present_device(on_gpu)
        costs = planned_costs(self.spec, on_gpu, engine.limits.max_batched_tokens, self.fast)
        if device is None:
            return
        if engine.fingerprint is not None:
            path, name = self.files.path, device.name
            save_fingerprint(path, self._before, self._computed, name, engine.fingerprint)
        key = rates_key(self.spec, costs, self.fast)
        if read_rates(device.name, key, engine.kernels) is None:
            write_rates(device.name, key, engine.kernels, engine.rates())

    def profile(self) -> ModelProfile:
        """See `ModelSource.profile`."""
        on_gpu = has_cuda() if self.device is None else self.device == "cuda"
        spec, device = self.spec, present_device(on_gpu)
        limits = _planned_limits(spec, device, on_gpu, self.fast)
        costs = planned_costs(spec, on_gpu, limits.max_batched_tokens, self.fast)
        key = rates_key(spec, costs, self.fast)
        rates = None if device is None else read_rates(device.name, key)
        capacity = None if device is None else limits.slots
        return ModelProfile(
            self._measure(spec),
            costs,
            device,
            rates,
            capacity,
            fingerprint=self._fingerprint(device),
        )

    def _fingerprint(self, device: Device | None) -> str | None:
        known = self._known
        if device is None or (known is not None and local_path(known) is None):
            return None
        return load_fingerprint(self.files.path, self._computed, device.name)

    @property
    def _computed(self) -> str:
        """The layout, and what is asked for besides."""
        return " ".join([self.layout, *self.fast.names])

    def _measure(self, spec: ModelSpec) -> Measure:
        layout = LAYOUTS.get(self.layout, LAYOUTS[DEFAULT_LAYOUT])
        known = self._known
        if known is not None and local_path(known) is None:
            return ByteMeasure(layout)
        return TokenMeasure(layout, self.encoder, spec.bos)


def planned_costs(spec: ModelSpec, on_gpu: bool, budget: int, fast: Fast = EXACT) -> ModelCosts:
    """The unit costs of a model as `load_engine` will run it, in batches of `budget` tokens."""
    if not on_gpu:
        return costs_of(spec, WeightDtype.FLOAT32, WeightDtype.FLOAT32, budget)
    return costs_of(spec, _gpu_dtype(spec, fast), WeightDtype.BFLOAT16, budget)


def _gpu_dtype(spec: ModelSpec, fast: Fast) -> WeightDtype:
    fp8 = fast.blocks or spec.weight_dtype is WeightDtype.FLOAT8
    return WeightDtype.FLOAT8 if fp8 else WeightDtype.BFLOAT16


def rates_key(spec: ModelSpec, costs: ModelCosts, fast: Fast = EXACT) -> str:
    """What rates depend on besides the device: the shape and dtypes, not the weights' values."""
    return " ".join([f"{spec} {costs.compute.value} {costs.attention.value}", *fast.names])


def _planned_limits(spec: ModelSpec, device: Device | None, on_gpu: bool, fast: Fast) -> Limits:
    """What `load_engine` will find; the least where the GPU is not known."""
    if not on_gpu:
        return cpu_limits(spec)
    weights = spec.parameters * _gpu_dtype(spec, fast).bytes
    return gpu_limits(spec, 0.0 if device is None else device.memory - weights)


def load(source: str | Path | ModelSource) -> Engine:
    """Load a model: a known name, a path, or a source already.

    Raises:
        ModelError: it cannot be found, read, or run on this machine.
    """
    return LocalModel(source).open() if isinstance(source, str | Path) else source.open()
