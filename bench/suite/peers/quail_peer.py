"""quail-engine 0.1.0 with its answers replaced by the planted truth. For a GPU; tests run what
replaces the answers, on a double of the engine's loops.

The engine plans and tokenises itself, so it is given texts, prompts and the suite's tokenizer
instead of ids; its prompts have the layout of the work, and a piece that differs is an error.
Filters and joins only: 0.1.0 has no classification, score column, sort or aggregate. Answers
are forced where the engine reads them: every packed chunk says which documents and suffixes
its answer rows belong to. Settings: device ("h100-sxm"; 0.1.0 knows no H200 and plans its
memory for the smaller card), base (the built-in model of the checkpoint's shape), sweep (false:
the engine's first start on a machine compiles some thousand products, minutes of work; without
it a product is compiled where it is first needed, so that a query is to be timed when it has run
once on the machine).
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import quail
from quail.backends.quail.executor import loop
from quail.builtins import built_in_registry
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from protocol import Outcome, Peer, Timing, Work, main


class Quail(Peer):
    """One session for all queries: the model is loaded once, tables are tokenised once."""

    name = "quail"

    def load(self, model: str, settings: dict[str, Any]) -> dict[str, str]:
        tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
            return ids

        registry = built_in_registry()
        base = registry.model(settings.get("base", "qwen3-4b-fp8"))
        registry.register_model(replace(base, name="suite", hf_name=model, revision=None))
        device = settings.get("device", "h100-sxm")
        config = quail.EngineConfig(gpus=1, model="suite", backend="quail", device=device)
        self._price = registry.device(device).usd_per_hour
        self._session = quail.Session(config, tokenizer=encode, registry=registry)
        self._tables: set[str] = set()
        self._forcing = Forcing()
        self._forcing.install()
        if not settings.get("sweep", False):
            self._skip_sweep()
        self._boot()
        return {"quail-engine": version("quail-engine"), "vllm": version("vllm")}

    def _skip_sweep(self) -> None:
        """Start as if all products were compiled, and leave no mark that they were."""
        self._marks = TemporaryDirectory(prefix="covey-quail-")
        os.environ["QUAIL_CACHE_DIR"] = self._marks.name
        loop.compile_kernels = loop.touch_kernels

    def _boot(self) -> None:
        """Load the model and warm its kernels, which the session puts off to its first query."""
        table = pa.table({"id": ["a", "b"], "text": ["TRUE", "FALSE"]})
        provider = quail.DocumentProvider.from_table(table, "id", identity="boot")
        self._session.register("boot", provider)
        query = self._session.docs("boot").alias("boot")
        prompt = quail.prompt("{0} TRUE", quail.col("boot.text"))
        query.ai_filter(prompt, selectivity=0.5).select("boot.id").run()

    def give_up(self) -> None:
        self._forcing.clear()

    def run(self, work: Work) -> Outcome:
        plan = json.loads((work.folder / "plan.json").read_text(encoding="utf-8"))
        if plan["unsupported"]:
            raise NotImplementedError(f"quail-engine 0.1.0 has no {plan['unsupported']}")
        for path in sorted((work.folder / "tables").glob("*.arrow")):
            if path.stem not in self._tables:
                with pa.memory_map(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
                provider = quail.DocumentProvider.from_table(table, "id", identity=path.stem)
                self._session.register(path.stem, provider)
                self._tables.add(path.stem)
        self._forcing.use(work.folder, plan)
        result = self._build(plan).run()
        report = result.report
        requested = sum(int(stage.lengths().sum()) for stage in work.stages)
        prompts = sum(map(len, work.stages))
        # The engine rounds its seconds to hundredths, but not what they cost.
        seconds = report["usd_per_query"] / self._price * 3600
        whole = Timing(seconds, prompts, requested, int(report["fresh_tokens"]))
        asked = sum(each.get("evaluated", each.get("tuples", 0)) for each in report["stages"])
        print(f"{work.query}: {result.count()} rows, {asked} prompts asked", flush=True)
        peak = report.get("peak_gib")
        return Outcome(
            seconds=seconds,
            stages=[whole],
            peak_bytes=None if peak is None else int(peak * 2**30),
        )

    def _build(self, plan: dict[str, Any]) -> Any:
        """The query in the engine's own builder, with the planner's estimates."""

        def relation(scan: dict[str, str]) -> Any:
            query = self._session.docs(scan["table"]).alias(scan["alias"])
            for each in plan["filters"]:
                if each["alias"] == scan["alias"]:
                    column = quail.col(f"{each['alias']}.{each['column']}")
                    prompt = quail.prompt(each["prompt"], column)
                    query = query.ai_filter(prompt, selectivity=each["selectivity"])
            return query

        query = relation(plan["relations"][0])
        for scan, join in zip(plan["relations"][1:], plan["joins"], strict=True):
            equal = [quail.col(one) == quail.col(other) for one, other in join["on"]]
            columns = [quail.col(name) for name in join["columns"]]
            query = query.join(relation(scan), on=equal)
            prompt = quail.prompt(join["prompt"], *columns)
            query = query.ai_filter(prompt, selectivity=join["selectivity"])
        return query.select(*(f"{scan['alias']}.id" for scan in plan["relations"]))


class Suffix(list):  # type: ignore[type-arg]
    """A partner's tokens that know which predicate and partner row they ask about."""

    predicate = ""
    anchor = 0
    row = 0


class Forcing:
    """Plants answers in the engine's loops.

    `loop.pack_chunk` gets the documents and suffixes of a chunk in the order of its answer
    rows, right before the chunk's answers are submitted; what is read back is then replaced.
    """

    def __init__(self) -> None:
        self._packed: deque[list[int]] = deque()
        self._truth: dict[str, np.ndarray] = {}
        self._plan: dict[str, Any] = {}
        self._rows: dict[str, dict[bytes, int]] = {}

    def clear(self) -> None:
        """Let the engine answer by itself."""
        self._plan = {}
        self._packed.clear()

    def use(self, folder: Path, plan: dict[str, Any]) -> None:
        """Take the truth and the pieces of a query."""
        self._plan = plan
        self._packed.clear()
        with np.load(folder / "truth.npz") as file:
            self._truth = {name: file[name] for name in file.files if "tokens" not in name}
            self._rows = {}
            for name in file.files:
                if name.startswith("tokens_flat_"):
                    table = name.removeprefix("tokens_flat_")
                    flat, offsets = file[name], file[f"tokens_offsets_{table}"]
                    runs = (flat[a:b] for a, b in pairwise(offsets.tolist()))
                    self._rows[table] = {run.tobytes(): i for i, run in enumerate(runs)}

    def install(self) -> None:
        """Put this between the engine's loops and its read-out."""
        pack, join, filters = loop.pack_chunk, loop.run_join, loop.FilterStream
        forcing = self

        def pack_chunk(torch: Any, arena: Any, groups: list[Any], *rest: Any, **named: Any) -> Any:
            if forcing._plan:  # nothing is forced while the engine warms up
                forcing._packed.append(forcing._answers(groups))
            return pack(torch, arena, groups, *rest, **named)

        def run_join(
            torch: Any,
            arena: Any,
            pipeline: Any,
            answers: Any,
            prefixes: Any,
            suffixes: Any,
            budget: int,
            **named: Any,
        ) -> Any:
            if not forcing._plan:
                return join(torch, arena, pipeline, answers, prefixes, suffixes, budget, **named)
            marked = forcing._marked(suffixes, named.get("stage_frames"))
            planted = Planted(answers, forcing._packed)
            return join(torch, arena, pipeline, planted, prefixes, marked, budget, **named)

        class Stream(filters):  # type: ignore[misc, valid-type]
            def __init__(
                self, torch: Any, arena: Any, pipeline: Any, answers: Any, *rest: Any, **named: Any
            ) -> None:
                if forcing._plan:
                    answers = Planted(answers, forcing._packed)
                super().__init__(torch, arena, pipeline, answers, *rest, **named)

        loop.pack_chunk, loop.run_join, loop.FilterStream = pack_chunk, run_join, Stream

    def _answers(self, groups: list[Any]) -> list[int]:
        """A planted answer for each answer row of a chunk: one a suffix."""
        found = []
        for group in groups:
            alias, row = group["key"]
            for suffix in group["suffixes"]:
                if isinstance(suffix, Suffix):
                    truth = self._truth[suffix.predicate]
                    pair = (row, suffix.row) if suffix.anchor == 0 else (suffix.row, row)
                    found.append(int(truth[pair]))
                elif group.get("write_suffix_tokens") == len(suffix):
                    found.append(0)  # a join's instruction, whose answer nobody reads
                else:
                    found.append(int(self._truth[self._filter(alias, suffix)][row]))
        return found

    def _filter(self, alias: str, tail: Any) -> str:
        """The filter of a relation whose tail, less what all tails share, this is."""
        ids = list(tail)
        fitting = [
            each["name"]
            for each in self._plan["filters"]
            if each["alias"] == alias and each["tail"][-len(ids) :] == ids
        ]
        if len(fitting) != 1:
            raise ValueError(f"no filter of {alias} ends as the engine's prompt does")
        return str(fitting[0])

    def _marked(self, suffixes: Any, instructions: Any) -> list[list[Suffix]]:
        """Every stage's suffixes, marked with what they ask."""
        marked = []
        for stage, texts in enumerate(suffixes):
            join, anchor = self._join(list(instructions[stage]))
            heading, tail = join["headings"][anchor], join["tail"]
            rows = self._rows[join["tables"][1 - anchor]]
            own = []
            for ids in texts:
                suffix = Suffix(ids)
                document = np.array(suffix[len(heading) : len(suffix) - len(tail)], np.int32)
                if suffix[: len(heading)] != heading or document.tobytes() not in rows:
                    raise ValueError("a partner's tokens are not those of the work")
                suffix.predicate, suffix.anchor = join["name"], anchor
                suffix.row = rows[document.tobytes()]
                own.append(suffix)
            marked.append(own)
        return marked

    def _join(self, instruction: list[int]) -> tuple[dict[str, Any], int]:
        """The join, and which of its documents is the anchor, that an instruction belongs to."""
        for join in self._plan["joins"]:
            for anchor in (0, 1):
                if join["instructions"][anchor] == instruction:
                    return join, anchor
        raise ValueError("the engine's instruction is that of no join of the query")


class Planted:
    """A read-out that does its work and gives the planted answers."""

    def __init__(self, inner: Any, packed: deque[list[int]]) -> None:
        self._inner = inner
        self._packed = packed
        self.dtype = inner.dtype

    def submit(self, states: Any) -> Any:
        answers = self._packed.pop()  # what was packed last is what has just run
        self._packed.clear()
        if len(answers) != len(states):
            raise ValueError(f"{len(states)} answer rows, {len(answers)} planted answers")
        return self._inner.submit(states), answers

    def result(self, handle: Any) -> list[int]:
        inner, answers = handle
        self._inner.result(inner)
        return list(answers)


if __name__ == "__main__":
    sys.exit(main(Quail()))
