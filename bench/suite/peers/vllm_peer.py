"""vLLM 0.26, an operator at a time or pipelined. For a GPU; tests run it on a double of vLLM.

Settings: pipelined (false), in_flight (requests that it holds at a time when pipelined, 4,096),
and arguments of `vllm.LLM` under "llm", which replace those here: prefix caching, 25,305 batched
tokens, 4,096 sequences, 0.91 of the memory. The environment is the caller's:
VLLM_USE_DEEP_GEMM_E8M0=0 keeps activation scales as the checkpoint has them, HF_HUB_OFFLINE=1
and VLLM_NO_USAGE_STATS=1 keep it from the network.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import torch
import vllm
from vllm import LLM, SamplingParams

sys.path.insert(0, str(Path(__file__).parent))
from protocol import Outcome, Peer, Stage, Timing, Work, by_stage, main

# Prompts made at a time: vLLM keeps a Python list of every prompt that it is given.
_WINDOW_TOKENS = 50_000_000
_TUNED: dict[str, Any] = {
    "enable_prefix_caching": True,
    "max_num_batched_tokens": 25_305,
    "max_num_seqs": 4_096,
    "gpu_memory_utilization": 0.91,
    "max_model_len": 32_768,
    "skip_tokenizer_init": True,
    "disable_log_stats": True,
}


class Vllm(Peer):
    """One `LLM`; every answer is one token chosen among those allowed."""

    name = "vllm"

    def load(self, model: str, settings: dict[str, Any]) -> dict[str, str]:
        self._pipelined = bool(settings.get("pipelined", False))
        self._in_flight = settings.get("in_flight", _TUNED["max_num_seqs"])
        self._llm = LLM(model=model, **{**_TUNED, **settings.get("llm", {})})
        return {"vllm": vllm.__version__, "torch": torch.__version__}

    def run(self, work: Work) -> Outcome:
        # The cache of one query must not serve the next.
        self._llm.reset_prefix_cache()
        if self._pipelined and not any(stage.labels for stage in work.stages):
            outcome = _Pipeline(self._llm, work, self._in_flight).run()
        else:
            outcome = by_stage(work, lambda stage: self._ask(stage, work))
        outcome.peak_bytes = _used_memory()
        return outcome

    def give_up(self) -> None:
        engine = self._llm.llm_engine
        engine.abort_request(list(engine.output_processor.request_states), internal=True)

    def _ask(self, stage: Stage, work: Work) -> tuple[int, np.ndarray]:
        if stage.labels:
            return self._classify(stage)
        sampling = _one_of([*work.true, *work.false])
        said = np.empty((len(stage), 1))
        fresh = 0
        for window in stage.windows(_WINDOW_TOKENS):
            prompts = [{"prompt_token_ids": stage.prompt(i)} for i in window]
            outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
            for index, output in zip(window, outputs, strict=True):
                fresh += _fresh(output)
                said[index, 0] = 1.0 if output.outputs[0].token_ids[0] in work.true else -1.0
        return fresh, said

    def _classify(self, stage: Stage) -> tuple[int, np.ndarray]:
        """Walk the trie of labels, one token a step where it branches."""
        written: list[tuple[int, ...]] = [()] * len(stage)
        said = np.full((len(stage), len(stage.labels)), -1.0)
        fresh = 0
        going = list(range(len(stage)))
        while going:
            groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for index in going:
                groups[written[index]].append(index)
            going = []
            for start, members in groups.items():
                choices = _choices(stage.labels, start)
                if len(choices) > 1:
                    prompts = [{"prompt_token_ids": [*stage.prompt(i), *start]} for i in members]
                    outputs = self._llm.generate(prompts, _one_of(choices), use_tqdm=False)
                    fresh += sum(map(_fresh, outputs))
                    picked = [output.outputs[0].token_ids[0] for output in outputs]
                else:
                    picked = choices * len(members)
                for index, token in zip(members, picked, strict=True):
                    written[index] = (*start, token)
                    if written[index] in stage.labels:
                        said[index, stage.labels.index(written[index])] = 0.0
                    else:
                        going.append(index)
        return fresh, said


def _used_memory() -> int:
    """Bytes in use on the device, whoever holds them: here, the engine's own process.

    Asked of the driver: CUDA would make a context in this process, for which the engine has left
    no room.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    pynvml.nvmlInit()
    try:
        by_number = shown.isdecimal()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(shown))
            if by_number
            else pynvml.nvmlDeviceGetHandleByUUID(shown)
        )
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    finally:
        pynvml.nvmlShutdown()


class _Pipeline:
    """A document's next prompts go in as soon as its own answers are there.

    vLLM runs requests in the order they come, so only so many are given to it at a time, and
    what follows an answer goes before fresh documents: its prefix is then still cached.

    Args:
        llm: the engine.
        work: what is asked.
        most: requests that it holds at a time.
    """

    def __init__(self, llm: LLM, work: Work, most: int) -> None:
        self._engine = llm.llm_engine
        self._work = work
        self._most = most
        self._sampling = _one_of([*work.true, *work.false])
        stages = work.stages
        self._said = [np.empty((len(stage), 1)) for stage in stages]
        self._fresh = 0
        self._running = 0
        # What must be answered before a prompt is asked: rows of earlier stages, counted.
        self._open = [_answers_by_row(stage) for stage in stages]
        self._left = [len(stage) for stage in stages]
        self._waiting: list[dict[int, list[int]]] = [_by_row(stage) for stage in stages]
        self._ready: list[deque[int]] = [deque() for _ in stages]

    def run(self) -> Outcome:
        started = time.perf_counter()
        for number in range(len(self._work.stages)):
            self._release(number, list(self._waiting[number]))
        self._fill()
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                if output.finished:
                    self._take(output)
            self._fill()
        seconds = time.perf_counter() - started
        stages = self._work.stages
        requested = sum(int(stage.lengths().sum()) for stage in stages)
        whole = Timing(seconds, sum(map(len, stages)), requested, self._fresh)
        return Outcome(seconds, [whole], said=list(self._said))

    def _take(self, output: Any) -> None:
        number, index = map(int, output.request_id.split("."))
        stage = self._work.stages[number]
        true = output.outputs[0].token_ids[0] in self._work.true
        self._said[number][index, 0] = 1.0 if true else -1.0
        self._fresh += _fresh(output)
        self._running -= 1
        row = int(stage.anchors[index])
        self._open[number][row] -= 1
        self._left[number] -= 1
        for follower, later in enumerate(self._work.stages):
            if later.after_anchor == number and self._open[number][row] == 0:
                self._release(follower, [row])
            if later.after_partner == number and self._left[number] == 0:
                self._release(follower, list(self._waiting[follower]))

    def _release(self, number: int, rows: list[int]) -> None:
        """Make the prompts of some anchor rows ready that wait for no answer any more."""
        stage = self._work.stages[number]
        if stage.after_partner >= 0 and self._left[stage.after_partner]:
            return
        before = {} if stage.after_anchor < 0 else self._open[stage.after_anchor]
        for row in rows:
            if before.get(row, 0) == 0:
                self._ready[number].extend(self._waiting[number].pop(row, ()))

    def _fill(self) -> None:
        """Give the engine what it has room for, the last operators first."""
        for number in reversed(range(len(self._ready))):
            stage, ready = self._work.stages[number], self._ready[number]
            while ready and self._running < self._most:
                index = ready.popleft()
                prompt = {"prompt_token_ids": stage.prompt(index)}
                self._engine.add_request(f"{number}.{index}", prompt, self._sampling)
                self._running += 1


def _by_row(stage: Stage) -> dict[int, list[int]]:
    """The prompts of each anchor row."""
    found: dict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(stage.anchors.tolist()):
        found[row].append(index)
    return dict(found)


def _answers_by_row(stage: Stage) -> dict[int, int]:
    rows, counts = np.unique(stage.anchors, return_counts=True)
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))


def _one_of(tokens: list[int]) -> SamplingParams:
    return SamplingParams(
        temperature=0.0, max_tokens=1, detokenize=False, allowed_token_ids=sorted(set(tokens))
    )


def _choices(labels: tuple[tuple[int, ...], ...], start: tuple[int, ...]) -> list[int]:
    """The tokens that may follow what is written of a label."""
    own = [label for label in labels if label[: len(start)] == start and len(label) > len(start)]
    return sorted({label[len(start)] for label in own})


def _fresh(output: Any) -> int:
    return len(output.prompt_token_ids) - (output.num_cached_tokens or 0)


if __name__ == "__main__":
    sys.exit(main(Vllm()))
