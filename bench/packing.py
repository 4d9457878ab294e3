"""How fast the host plans and packs prompts: `python bench/packing.py`.

A whole session with a model that computes nothing and a tokenizer that reads bytes, so
that what is left is the work of the host: naming the distinct documents, the tries, the
batches, the slots of keys and values, and handing the answers back.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.arrays import Float64, Int32, Int64
from covey.engine.base import Counters, PromptBatch
from covey.engine.labels import Wanted
from covey.engine.limits import Limits
from covey.engine.session import LocalSession
from covey.kernels.base import ForwardBatch
from covey.models.registry import find_known
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import RAW_V1
from covey.prompts.question import Question, QuestionKind

SPEC = find_known("qwen3-4b-fp8").spec
LIMITS = Limits(context=SPEC.context, max_batched_tokens=32_768, slots=500_000, in_flight=2)
FILTER = Question(QuestionKind.JUDGE, "Is the customer asking for a refund? {0}", 1)
JOIN = Question(QuestionKind.JUDGE, "Does {0} mention {1}?", 2)


class Bytes:
    """A token is four bytes of text."""

    def ids(self, text: str) -> list[int]:
        return self._ids(text).tolist()

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        runs = [self._ids(text) for text in texts]
        offsets = np.cumsum([0, *map(len, runs)], dtype=np.int64)
        return np.concatenate(runs), offsets

    def _ids(self, text: str) -> Int32:
        raw = text.encode()
        return np.frombuffer(raw + b" " * (-len(raw) % 4), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Nothing:
    """Runs batches in no time; every answer is zero."""

    answers: int = 0

    def launch(self, batch: ForwardBatch, wanted: Wanted | None = None) -> Nothing:
        return Nothing(len(batch.logits_indices) + (0 if wanted is None else len(wanted.answers)))

    def result(self) -> tuple[Float64, float]:
        return np.zeros(self.answers), 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Batches over made-up documents; `half` asks every second pair only."""

    title: str
    anchors: int
    anchor_tokens: int
    partners: int = 0
    half: bool = False
    reads: float = 0.0


CASES = {
    "join": Case("2,500 anchors x 2,000 partners", 2_500, 300, 2_000),
    "half": Case("half of those pairs, at random", 2_500, 300, 2_000, half=True),
    "reviews": Case("25,000 anchors x 12 partners", 25_000, 300, 12),
    "filter": Case("100,000 documents, one question", 100_000, 300),
    "kept": Case("100,000 documents, kept for later while room lasts", 100_000, 300, reads=1.0),
}


def run(case: Case) -> tuple[int, float, Counters]:
    """Prompts, seconds from submit to the last answer, and the session's account."""
    rng = np.random.default_rng(20)
    store = DocumentStore()
    anchors = store.add(texts(rng, case.anchors, case.anchor_tokens))
    documents = anchors[:, None]
    if case.partners:
        partners = store.add([f"p{i} of {i % 7}" for i in range(case.partners)])
        grid = np.stack([np.repeat(anchors, len(partners)), np.tile(partners, len(anchors))], 1)
        documents = grid[rng.random(len(grid)) < 0.5] if case.half else grid
    question = JOIN if case.partners else FILTER
    session = LocalSession(store, Nothing(), SPEC, Bytes(), RAW_V1, LIMITS, lambda: None)
    with session:
        started = time.perf_counter()
        session.submit(PromptBatch(question, documents, case.reads))
        seconds = time.perf_counter() - started
        for part in session._queue[0].parts:  # tokenising is no part of it
            if part.tokenised is not None:
                part.tokenised.result()
        started = time.perf_counter()
        answered = sum(len(answers.rows) for answers in session.run())
        seconds += time.perf_counter() - started
    if answered != len(documents):
        raise SystemExit(f"{answered:,} answers of {len(documents):,} prompts")
    return answered, seconds, session.counters


def texts(rng: np.random.Generator, count: int, tokens: int) -> list[str]:
    """Texts of so many tokens of four letters each."""
    letters = rng.integers(97, 123, (count, 4 * tokens), dtype=np.uint8)
    return [row.tobytes().decode() for row in letters]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"some of: {', '.join(CASES)}")
    chosen = parser.parse_args().cases or list(CASES)
    unknown = sorted(set(chosen) - set(CASES))
    if unknown:
        parser.error(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    print("| case | prompts | seconds | million prompts/s | fresh tokens | million tokens/s |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    for name in chosen:
        prompts, seconds, counters = run(CASES[name])
        fresh = counters.fresh_tokens
        print(
            f"| {CASES[name].title} | {prompts:,} | {seconds:.2f} | {prompts / seconds / 1e6:.2f} "
            f"| {fresh:,} | {fresh / seconds / 1e6:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
