"""A loaded model as an `Engine`."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from covey.engine.base import EngineSession, OutOfMemory
from covey.engine.device_errors import device_errors
from covey.engine.kv_cache.pool import KvCachePool
from covey.engine.limits import GPU_LEAST_BYTES, Limits, cpu_limits, gpu_limits
from covey.engine.model_runner import ModelRunner, TorchRunner
from covey.engine.readout import answer_tokens
from covey.engine.session import LocalSession
from covey.engine.timing import measure_rates
from covey.errors import InputError, ModelError, RunError
from covey.estimate.rates import Rates
from covey.hardware import forks
from covey.hardware.devices import memory_bytes
from covey.kernels.base import AttentionConfig
from covey.kernels.choose import choose_kernels
from covey.kernels.device_memory import is_out_of_memory
from covey.kernels.fast import EXACT, Fast
from covey.kernels.reference import ReferenceKernels
from covey.kernels.scales import quantise_weight
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from covey.models.spec import ModelSpec, WeightDtype
from covey.prompts.documents import DocumentStore
from covey.prompts.fast_tokens import checked_encoder
from covey.prompts.layout import LAYOUTS, Layout
from covey.prompts.tokens import Encoder

_LOG = logging.getLogger(__name__)
# Below these, less would save no memory worth its time.
LEAST_BATCHED_TOKENS = 512
LEAST_SLOTS = 8192


class LoadedEngine:
    """See `covey.engine.base.Engine`.

    Args:
        name: the model's name.
        fingerprint: of everything that an answer depends on.
        runner: given a number of slots, makes what runs batches with a KV cache of so many.
        spec: the model.
        encoder: its tokenizer.
        layout: how prompts are laid out.
        limits: what a session may use.
        kernels: names what runs the batches; rates are measured for it.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        runner: Callable[[int], ModelRunner],
        spec: ModelSpec,
        encoder: Encoder,
        layout: Layout,
        limits: Limits,
        kernels: str = "",
    ) -> None:
        self.name = name
        self.kernels = kernels
        self.fingerprint = fingerprint
        self.limits = limits
        self._make_runner = runner
        self._runner: tuple[int, ModelRunner] | None = None
        self._spec = spec
        self._encoder = encoder
        self._layout = layout
        self._cache_lacks = False
        self._busy = False

    def session(self, documents: DocumentStore) -> EngineSession:
        """See `Engine.session`; RunError while another session is open."""
        if self._busy:
            raise RunError(
                f"{self.name} already runs a query. Wait for it, or connect a second time."
            )
        session = LocalSession(
            documents,
            self._ready(),
            self._spec,
            self._encoder,
            self._layout,
            self.limits,
            self._release,
        )
        self._busy = True
        return session

    def rates(self) -> Rates:
        """Time a few batches, with less memory where there is too little; see `engine.timing`.

        Raises:
            ModelError: what is left beside the weights is not enough.
        """
        # The processor works on the batches itself where none is ever left under way.
        threads = torch.get_num_threads() if self.limits.in_flight == 1 else None
        while True:
            try:
                with device_errors():
                    limits = self.limits
                    return measure_rates(
                        self._ready(), limits.max_batched_tokens, limits.slots, threads
                    )
            except OutOfMemory as error:
                reason = str(error)
            if self.shrink() is None:
                raise ModelError(
                    f"{self.name} is loaded, but cannot run: {reason} Close what else uses the "
                    "memory, or take a smaller model."
                )

    def _ready(self) -> ModelRunner:
        slots = self.limits.slots
        if self._runner is None or self._runner[0] != slots:
            self._runner = None  # a KV cache is freed before another is made
            gc.collect()  # sessions that have ended may still refer to it, and to each other
            self._cache_lacks = True
            self._runner = (slots, self._make_runner(slots))
            self._cache_lacks = False
        return self._runner[1]

    def shrink(self) -> str | None:
        """See `Engine.shrink`: smaller batches, which need less room, before a smaller KV cache.

        Where the KV cache itself found no room, smaller batches would not help.
        """
        limits = self.limits
        if limits.max_batched_tokens > LEAST_BATCHED_TOKENS and not self._cache_lacks:
            self.limits = replace(limits, max_batched_tokens=limits.max_batched_tokens // 2)
            done = f"batches of {self.limits.max_batched_tokens:,} tokens"
        elif limits.slots > LEAST_SLOTS:
            self.limits = replace(limits, slots=limits.slots // 2)
            done = f"room for the keys and values of {self.limits.slots:,} tokens"
        else:
            return None
        # What the failed batch held may hang in the cycles of its traceback.
        self._runner = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return done

    def _release(self) -> None:
        self._busy = False


def load_engine(
    name: str, files: ModelFiles, device: str | None, layout: str, fast: Fast = EXACT
) -> LoadedEngine:
    """Load a model's weights onto a device.

    Args:
        name: for reports.
        files: the model on disk.
        device: "cpu", "cuda", or None for the GPU where there is one.
        layout: a name in `LAYOUTS`.
        fast: what may cost exactness.

    Raises:
        ModelError: the files are damaged or the device cannot run them.
        InputError: no such layout.
    """
    if layout not in LAYOUTS:
        raise InputError(f"There is no prompt layout {layout!r}. Known: {', '.join(LAYOUTS)}.")
    where = _device(device)
    _refuse_inherited(name, where)
    with _within_memory(files):
        return _loaded(name, files, where, layout, fast)


def _loaded(
    name: str, files: ModelFiles, where: torch.device, layout: str, fast: Fast
) -> LoadedEngine:
    """See `load_engine`; what exceeds the memory is raised as it comes."""
    spec, encoder = files.spec, files.encoder
    quantised = spec.weight_dtype is WeightDtype.FLOAT8
    if quantised and where.type == "cpu":
        raise ModelError(
            f"{files.path} holds FP8 weights, which need a GPU. On a CPU use qwen3-0.6b, or the"
            " BF16 or GGUF form of this model."
        )
    checkpoint = files.checkpoint()
    if where.type == "cuda":
        check_room(spec, torch.cuda.mem_get_info(where)[0], torch.cuda.get_device_name(where))
    else:
        check_memory(spec, memory_bytes())
    dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    config = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    kernels, chosen = choose_kernels(config, where, dtype, quantised, fast)
    if chosen is not None:
        slow = isinstance(kernels, ReferenceKernels)
        _LOG.log(logging.WARNING if slow else logging.INFO, "%s: %s", name, chosen)
    answers = answer_tokens(encoder)
    rounding = quantise_weight if fast.blocks else None
    model = CausalLM(spec, load_weights(spec, checkpoint, where, dtype, rounding), kernels)
    identity = [checkpoint.fingerprint(), encoder.fingerprint, str(spec), layout, str(dtype)]
    computed = " ".join([type(kernels).__name__, *fast.names])

    def runner(slots: int) -> ModelRunner:
        pool = KvCachePool(spec, where, dtype, slots)
        return TorchRunner(model, answers, where, pool.layers)

    return LoadedEngine(
        name,
        hashlib.sha256("\n".join([*identity, computed, where.type]).encode()).hexdigest(),
        runner,
        spec,
        checked_encoder(encoder, encoder.json),
        LAYOUTS[layout],
        _limits(spec, where),
        computed,
    )


def _refuse_inherited(name: str, where: torch.device) -> None:
    """Refuse what would wait for threads of torch that a forked process does not have.

    Raises:
        ModelError: this is one; one thread would do on a processor.
    """
    if not forks.torch_came_along():
        return
    if where.type == "cuda" or torch.get_num_threads() > 1:
        other = "" if where.type == "cuda" else " Or call torch.set_num_threads(1) here first."
        raise ModelError(
            f"{name} cannot run in this process, which was forked from one that had loaded torch:"
            f" the threads that compute are not here. Fork before that, or {forks.SPAWN}.{other}"
        )


@contextmanager
def _within_memory(files: ModelFiles) -> Iterator[None]:
    """Turns the many ways in which memory ends while a model is loaded into a ModelError."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"There is not enough memory to load {files.path}. Close what else uses memory, raise"
            " its limit (ulimit -v), or take a smaller model."
        ) from error


def check_room(spec: ModelSpec, free: int, device: str) -> None:
    """Refuse a model that a GPU cannot hold, before minutes are spent on loading it.

    Args:
        spec: the model.
        free: bytes that the GPU has.
        device: its name.

    Raises:
        ModelError: the weights, a small KV cache and the activations need more.
    """
    quantised = spec.weight_dtype is WeightDtype.FLOAT8
    tables = spec.parameters - spec.linear_parameters
    weights = spec.linear_parameters * (1 if quantised else 2) + 2 * tables
    needed = weights + GPU_LEAST_BYTES
    if free < needed:
        raise ModelError(
            f"This model needs {needed / 2**30:.1f} GiB of GPU memory, and the {device} has"
            f" {free / 2**30:.1f} GiB free. Close what else uses it, or take a smaller model."
        )


def check_memory(spec: ModelSpec, installed: int | None) -> None:
    """Refuse a model that this machine's memory cannot hold; a system may end what tries.

    Args:
        spec: the model.
        installed: bytes of memory, None where they are not known.

    Raises:
        ModelError: its weights alone, as FP32, need more.
    """
    needed = 4 * spec.parameters
    if installed is not None and needed > installed:
        raise ModelError(
            f"This model's weights need {needed / 2**30:.1f} GiB of memory as FP32, and this"
            f" machine has {installed / 2**30:.1f} GiB. Take a smaller model, or a GPU."
        )


def _limits(spec: ModelSpec, device: torch.device) -> Limits:
    """The limits beside the weights, which are loaded."""
    if device.type == "cpu":
        return cpu_limits(spec)
    return gpu_limits(spec, torch.cuda.mem_get_info(device)[0])


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ModelError(f"There is no device {name!r}. Known: cpu, cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError("This machine has no CUDA device that torch can use. Use device='cpu'.")
    return torch.device(name)
