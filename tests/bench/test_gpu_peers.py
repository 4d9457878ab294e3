"""The peers that need a GPU, with doubles in place of their engines.

What the doubles do is what the engines' documentation says of the calls that the scripts use.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.peering import write_work
from suite.peers.protocol import Work, load_work
from suite.queries import QUERIES
from suite.querying import write_query
from suite.run import corpus_of
from suite.tables import DEFAULT_SEED
from suite.tokens import CorpusTokens
from suite.truth import plant

SCRIPTS = Path(__file__).parents[2] / "bench" / "suite" / "peers"


@cache
def tokens() -> CorpusTokens:
    return CorpusTokens(corpus_of(0.0, DEFAULT_SEED))


def work_of(query: str, folder: Path) -> Work:
    write_work(folder, QUERIES[query], tokens(), plant(tokens().corpus))
    return load_work(folder)


def script(name: str) -> Any:
    """A peer's script as a module; what it imports must be in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(f"{name}_under_test", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Sampling:
    """vllm.SamplingParams as the script uses it."""

    temperature: float
    max_tokens: int
    detokenize: bool
    allowed_token_ids: list[int]


class Llm:
    """vllm.LLM and its engine: answers the last allowed token, a few requests a step."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.asked: list[tuple[int, ...]] = []
        self.order: list[str] = []
        self.queue: deque[tuple[str, list[int], Sampling]] = deque()
        self.llm_engine = self
        self.most = 0

    def reset_prefix_cache(self) -> None:
        self.asked.clear()

    def generate(self, prompts: list[Any], sampling: Sampling, *, use_tqdm: bool) -> list[Any]:
        return [self._output("", each["prompt_token_ids"], sampling) for each in prompts]

    def add_request(self, name: str, prompt: Any, sampling: Sampling) -> None:
        self.queue.append((name, prompt["prompt_token_ids"], sampling))

    def has_unfinished_requests(self) -> bool:
        return bool(self.queue)

    def step(self) -> list[Any]:
        self.most = max(self.most, len(self.queue))
        taken = [self.queue.popleft() for _ in range(min(3, len(self.queue)))]
        return [self._output(*each) for each in taken]

    def _output(self, name: str, ids: list[int], sampling: Sampling) -> Any:
        self.asked.append(tuple(ids))
        self.order.append(name)
        chosen = SimpleNamespace(token_ids=[sampling.allowed_token_ids[-1]])
        return SimpleNamespace(
            request_id=name,
            prompt_token_ids=ids,
            num_cached_tokens=1,
            finished=True,
            outputs=[chosen],
        )


@pytest.fixture
def vllm_peer(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = ModuleType("vllm")
    fake.__version__ = "0.26.0"  # type: ignore[attr-defined]
    fake.LLM, fake.SamplingParams = Llm, Sampling  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", fake)
    driver: Any = ModuleType("pynvml")
    driver.nvmlInit = driver.nvmlShutdown = lambda: None
    driver.nvmlDeviceGetHandleByIndex = lambda index: ["GPU-a", "GPU-b"][index]
    driver.nvmlDeviceGetHandleByUUID = lambda name: name
    used = {"GPU-a": 1, "GPU-b": 2}
    driver.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=used[handle])
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    return script("vllm_peer")


def all_prompts(work: Work) -> list[tuple[int, ...]]:
    return sorted(tuple(s.prompt(i)) for s in work.stages for i in range(len(s)))


@pytest.mark.parametrize("query", ["IMDB-8", "BIO-4", "FEV-9", "IMDB-10"])
@pytest.mark.parametrize("pipelined", [False, True])
def test_vllm_is_asked_every_prompt_once(
    query: str, pipelined: bool, vllm_peer: Any, tmp_path: Path
) -> None:
    work = work_of(query, tmp_path)
    peer = vllm_peer.Vllm()
    peer.load("model", {"pipelined": pipelined, "llm": {"load_format": "dummy"}})
    assert peer._llm.arguments["load_format"] == "dummy"
    assert peer._llm.arguments["max_num_seqs"] == 4_096
    outcome = peer.run(work)
    assert sorted(peer._llm.asked) == all_prompts(work)
    assert outcome.peak_bytes == 2 and len(outcome.said) == len(work.stages)
    prompts = sum(map(len, work.stages))
    requested = sum(int(stage.lengths().sum()) for stage in work.stages)
    assert sum(timing.fresh for timing in outcome.stages) == requested - prompts


@pytest.mark.parametrize(("shown", "used"), [("0,1", 1), ("GPU-b", 2), ("1", 2)])
def test_memory_is_that_of_the_device_that_cuda_shows(
    shown: str, used: int, vllm_peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert vllm_peer._used_memory() == used


def test_a_pipelined_document_waits_for_its_own_answers_only(
    vllm_peer: Any, tmp_path: Path
) -> None:
    work = work_of("IMDB-10", tmp_path)
    peer = vllm_peer.Vllm()
    peer.load("model", {"pipelined": True, "in_flight": 4})
    peer.run(work)
    place = {name: i for i, name in enumerate(peer._llm.order)}
    overlapped = False
    for number, stage in enumerate(work.stages):
        for index in range(len(stage)):
            own = place[f"{number}.{index}"]
            if stage.after_anchor >= 0:
                before = work.stages[stage.after_anchor]
                rows = np.flatnonzero(before.anchors == stage.anchors[index])
                assert all(place[f"{stage.after_anchor}.{row}"] < own for row in rows)
                last = max(place[f"{stage.after_anchor}.{i}"] for i in range(len(before)))
                overlapped |= own < last
    assert overlapped and peer._llm.most == 4


def test_vllm_walks_labels_to_their_end(vllm_peer: Any, tmp_path: Path) -> None:
    work = work_of("IMDB-14", tmp_path)
    peer = vllm_peer.Vllm()
    peer.load("model", {"pipelined": True})
    outcome = peer.run(work)
    for stage, said in zip(work.stages, outcome.said, strict=True):
        chosen = said.argmax(1)
        assert (said.max(1) == 0.0).all() and len(set(chosen.tolist())) == 1
        # The double takes the greatest token wherever labels part.
        label, before = stage.labels[chosen[0]], ()
        for token in label:
            nexts = {x[len(before)] for x in stage.labels if x[: len(before)] == before}
            assert token == max(nexts)
            before = (*before, token)


@pytest.fixture
def quail_peer(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = ("quail", "quail.backends", "quail.backends.quail", "quail.backends.quail.executor")
    for name in (*names, "quail.builtins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    loop = ModuleType("loop")
    loop.pack_chunk = loop.run_join = lambda *_: None  # type: ignore[attr-defined]
    loop.FilterStream = object  # type: ignore[attr-defined]
    loop.compile_kernels, loop.touch_kernels = object(), object()  # type: ignore[attr-defined]
    sys.modules["quail.backends.quail.executor"].loop = loop  # type: ignore[attr-defined]
    sys.modules["quail.builtins"].built_in_registry = dict  # type: ignore[attr-defined]
    return script("quail_peer")


def test_quails_answers_are_those_planted(quail_peer: Any, tmp_path: Path) -> None:
    truth = plant(tokens().corpus)
    write_query(tmp_path, QUERIES["FEV-6"], tokens(), truth)
    plan = json.loads((tmp_path / "plan.json").read_text())
    forcing = quail_peer.Forcing()
    forcing.use(tmp_path, plan)
    tails = {each["name"]: each["tail"] for each in plan["filters"]}
    (join,) = plan["joins"]
    # Passages first: the suffixes are the claims, as the engine puts them together.
    claims = tokens().column(("claims", "claim"))
    suffixes = [
        [*join["headings"][1], *claims.run(row).tolist(), *join["tail"]]
        for row in range(len(claims))
    ]
    (marked,) = forcing._marked([suffixes], [join["instructions"][1]])
    groups = [
        {"key": ("c", 2), "suffixes": [tails["F11"]], "write_suffix_tokens": 11},
        {"key": ("c", 3), "suffixes": [tails["F12"][11:]]},
        {"key": ("e", 1), "suffixes": [join["instructions"][1]], "write_suffix_tokens": 43},
        {"key": ("e", 1), "suffixes": marked},
    ]
    groups[2]["write_suffix_tokens"] = len(join["instructions"][1])
    judged = truth.judged
    expected = [judged["F11"][2], judged["F12"][3], False, *judged["SUPPORT"][:, 1]]
    assert forcing._answers(groups) == [int(each) for each in expected]
    with pytest.raises(ValueError, match="no filter of c"):
        forcing._answers([{"key": ("c", 2), "suffixes": [[1, 2, 3]]}])
    with pytest.raises(ValueError, match="of no join"):
        forcing._marked([suffixes], [[1, 2, 3]])


def test_nothing_is_forced_while_quail_boots_or_after_a_query_was_given_up(
    quail_peer: Any, tmp_path: Path
) -> None:
    loop = sys.modules["quail.backends.quail.executor"].loop  # type: ignore[attr-defined]
    packed: list[Any] = []
    loop.pack_chunk = lambda torch, arena, groups, **named: packed.append(groups)
    forcing = quail_peer.Forcing()
    forcing.install()
    warm = [{"key": 0, "suffixes": [[1, 2]]}]  # a warm-up's keys name no alias
    loop.pack_chunk(None, None, warm, attention_mode="unified")
    assert packed == [warm] and not forcing._packed
    write_query(tmp_path, QUERIES["FEV-1"], tokens(), plant(tokens().corpus))
    plan = json.loads((tmp_path / "plan.json").read_text())
    forcing.use(tmp_path, plan)
    asked = [{"key": ("c", 0), "suffixes": [plan["filters"][0]["tail"]]}]
    loop.pack_chunk(None, None, asked, attention_mode="unified")
    assert len(forcing._packed) == 1
    forcing.clear()
    loop.pack_chunk(None, None, warm, attention_mode="unified")
    assert len(packed) == 3 and not forcing._packed


def quail_registry(report: dict[str, Any]) -> Any:
    """A double of the engine's registry; its session's queries end with a report."""
    quail: Any = sys.modules["quail"]
    result = SimpleNamespace(report=report, count=lambda: 7)
    query: Any = SimpleNamespace(run=lambda: result)
    for name in ("alias", "ai_filter", "join", "select"):
        setattr(query, name, lambda *_, **__: query)
    session = SimpleNamespace(register=lambda *_: None, docs=lambda _: query)
    quail.EngineConfig = SimpleNamespace
    quail.Session = lambda *_, **__: session
    quail.DocumentProvider = SimpleNamespace(from_table=lambda *_, **__: None)
    quail.prompt = quail.col = lambda *_: "text"
    device = SimpleNamespace(usd_per_hour=3.6)
    return SimpleNamespace(
        model=lambda _: Model("qwen3", "", ""),
        register_model=lambda _: None,
        device=lambda _: device,
    )


@dataclass(frozen=True)
class Model:
    """quail's ModelSpec as the script uses it."""

    name: str
    hf_name: str
    revision: str | None


@pytest.mark.parametrize("sweep", [False, True])
def test_quails_seconds_are_not_rounded_and_its_sweep_is_asked_for(
    sweep: bool, quail_peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUAIL_CACHE_DIR", "theirs")
    stages = [{"op": "filter", "evaluated": 50}, {"op": "join", "tuples": 600}]
    report = {"usd_per_query": 0.004321e-3, "wall_s": 0.0, "fresh_tokens": 9, "stages": stages}
    registry = quail_registry(report)
    monkeypatch.setattr(quail_peer, "built_in_registry", lambda: registry)
    monkeypatch.setattr(quail_peer.Tokenizer, "from_file", lambda _: None)
    monkeypatch.setattr(quail_peer, "version", lambda name: f"{name} of a test")
    loop = sys.modules["quail.backends.quail.executor"].loop  # type: ignore[attr-defined]
    compiling = loop.compile_kernels
    peer = quail_peer.Quail()
    peer.load("checkpoint", {"sweep": sweep})
    assert loop.compile_kernels is (compiling if sweep else loop.touch_kernels)
    assert (os.environ["QUAIL_CACHE_DIR"] == "theirs") is sweep
    work = work_of("FEV-1", tmp_path)
    write_query(tmp_path, QUERIES["FEV-1"], tokens(), plant(tokens().corpus))
    outcome = peer.run(work)
    assert outcome.seconds == pytest.approx(0.004321) and outcome.stages[0].fresh == 9
    assert outcome.peak_bytes is None


def test_vllm_forgets_what_was_given_up(vllm_peer: Any) -> None:
    peer = vllm_peer.Vllm()
    peer.load("model", {})
    aborted: list[tuple[list[str], bool]] = []
    peer._llm.output_processor = SimpleNamespace(request_states={"7-ab": 0, "8-cd": 0})
    peer._llm.abort_request = lambda ids, internal: aborted.append((ids, internal))
    peer.give_up()
    assert aborted == [(["7-ab", "8-cd"], True)]


def test_quails_read_out_runs_and_is_replaced(quail_peer: Any) -> None:
    inner = SimpleNamespace(dtype=None, submit=list, result=lambda handle: handle)
    packed = deque([[1, 0, 1]])
    planted = quail_peer.Planted(inner, packed)
    handle = planted.submit([0.1, 0.2, 0.3])
    assert planted.result(handle) == [1, 0, 1] and not packed
    packed.append([1])
    with pytest.raises(ValueError, match="2 answer rows, 1 planted"):
        planted.submit([0.1, 0.2])


def test_products_are_those_of_a_checkpoint_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"hidden_size": 2560, "intermediate_size": 9728, "head_dim": 128}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    products = script("products")
    shapes = [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)]
    wanted = products.tasks(tmp_path)
    assert wanted[:4] == [(109_824, *shape) for shape in shapes]
    assert {task[1:] for task in wanted} == set(shapes)
    assert any(tokens % 4 for tokens, _, _ in wanted)
    asked: list[tuple[Any, ...]] = []

    def product(left: Any, right: Any, out: Any, *, is_deep_gemm_e8m0_used: bool) -> None:
        if is_deep_gemm_e8m0_used or len(out) > 64:
            raise RuntimeError("too many\ntokens")
        asked.append((*left[0].shape, *left[1].stride(), *right[1].shape, *out.shape))

    for name in ("vllm", "vllm.utils", "vllm.utils.deep_gemm"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.utils.deep_gemm"].fp8_gemm_nt = product  # type: ignore[attr-defined]
    torch = pytest.importorskip("torch")
    cpu = torch.device("cpu")
    monkeypatch.setattr(torch, "device", lambda name: cpu)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert products.multiply((64, 256, 128)) == ""
    assert asked == [(64, 128, 1, 64, 2, 1, 64, 256)]
    assert products.multiply((65, 256, 128)) == "(65, 256, 128): RuntimeError: too many"
