"""Time and memory of the prompt forest: `python bench/forest.py`.

Builds tries of a million documents in several shapes, then packs five million join
pairs batch by batch. Each case runs in a process of its own, so that the peak resident
memory printed beside it is its own, inputs and interpreter included. Seconds are wall time; CPU
seconds stand beside them, and what they differ by is the machine's other work.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from covey.prompts.forest import Forest, ask_all, ask_pairs, build_trie, flatten, pack
from covey.prompts.tokens import Tokens

VOCABULARY = 151_936  # Qwen3
BUDGET = 32_768  # tokens of a batch
BLOCK = 1 << 20
SEED = 20_261_129

Row = tuple[str, str]


class Stopwatch:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({time.process_time() - self._cpu:.2f} CPU)"


def words(rng: np.random.Generator, count: int) -> np.ndarray:
    """Token ids with the long tail of text: rank r about as often as 1 / r."""
    out = np.empty(count, dtype=np.int32)
    for at in range(0, count, BLOCK):  # small blocks, or this is the peak that is measured
        draws = rng.random(len(out[at : at + BLOCK]), dtype=np.float32)
        out[at : at + BLOCK] = np.exp(draws * np.log(VOCABULARY)) - 1
    return out


def equal_lengths(flat: np.ndarray, length: int) -> Tokens:
    """A flat array as runs of one length."""
    return Tokens(flat, np.arange(0, len(flat) + 1, length, dtype=np.int64))


def independent(rng: np.random.Generator) -> Tokens:
    """1,000,000 documents of 300 tokens behind a preamble of 3."""
    flat = words(rng, 300_000_000).reshape(-1, 300)
    flat[:, :3] = (1, 2, 3)
    return equal_lengths(flat.reshape(-1), 300)


def all_equal(rng: np.random.Generator) -> Tokens:
    """1,000,000 copies of one document of 300 tokens."""
    return equal_lengths(np.tile(words(rng, 300), 1_000_000), 300)


def long_openings(rng: np.random.Generator) -> Tokens:
    """1,000,000 documents of 300 tokens that first differ at the 290th."""
    flat = np.tile(words(rng, 300), 1_000_000).reshape(-1, 300)
    flat[:, 290:] = rng.integers(0, 4, (len(flat), 10))
    return equal_lengths(flat.reshape(-1), 300)


def traces(rng: np.random.Generator) -> Tokens:
    """18,000 nested snapshots of 3,600 trajectories, about 8,100 tokens each."""
    system, parts = words(rng, 1_200), []
    for _ in range(3_600):
        whole = np.concatenate([system, words(rng, 12_300)])
        parts += [whole[:end] for end in (3_000, 5_600, 8_100, 10_700, 13_500)]
    offsets = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return Tokens(np.concatenate(parts), offsets)


def chain(rng: np.random.Generator) -> Tokens:
    """20,000 documents, each the one before and a token more."""
    whole, ends = words(rng, 20_000), np.arange(20_001, dtype=np.int64)
    return Tokens(np.concatenate([whole[:end] for end in range(1, 20_001)]), ends * (ends + 1) // 2)


def one_token(rng: np.random.Generator) -> Tokens:
    """1,000,000 documents of one token, a tenth of them empty."""
    lengths = (rng.random(1_000_000) < 0.9).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(words(rng, int(offsets[-1])), offsets)


def build(make: Callable[[np.random.Generator], Tokens]) -> Row:
    """One line about building, and flattening, the trie of some documents."""
    tokens = make(np.random.default_rng(SEED))
    watch = Stopwatch()
    trie = build_trie(tokens)
    built, watch = str(watch), Stopwatch()
    flat = flatten(trie, 8)
    flattened = str(watch)
    return (
        (make.__doc__ or "").rstrip("."),
        f"{built}, flatten(8) {flattened}; {trie.requested_tokens:,} tokens, "
        f"{trie.size:,} at least, {len(trie):,} nodes ({len(flat):,} and {flat.size - trie.size:,} "
        "tokens given up when flattened)",
    )


def join_tries(rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """2,500 anchors of 300 tokens; instruction of 60 and 2,000 partners of 2 to 8, cue of 3."""
    anchors = equal_lengths(words(rng, 2_500 * 300), 300)
    head, cue = words(rng, 60), words(rng, 3)
    partners = [np.concatenate([head, words(rng, int(n)), cue]) for n in rng.integers(2, 9, 2_000)]
    offsets = np.cumsum([0, *(len(partner) for partner in partners)], dtype=np.int64)
    return anchors, Tokens(np.concatenate(partners), offsets)


def describe(forest: Forest, prepared: Stopwatch) -> str:
    """One line about packing a whole forest in batches, after what `prepared` measured."""
    before, before_text = prepared.wall, str(prepared)
    watch, answers = Stopwatch(), 0
    for begin in range(0, forest.size, BUDGET):
        end = min(begin + BUDGET, forest.size)
        answers += len(pack(forest, np.array([begin]), np.array([end])).logits_indices)
    seconds, text = watch.wall, str(watch)
    if answers != forest.prompts:
        raise SystemExit(f"packed {answers:,} answers of {forest.prompts:,} prompts")
    return (
        f"prepare {before_text}, pack {text}: {answers:,} prompts, "
        f"{answers / (before + seconds) / 1e6:.1f} million pairs/s, "
        f"{forest.size / seconds / 1e6:.0f} million tokens/s, {forest.size:,} of "
        f"{forest.requested_tokens:,} requested tokens"
    )


def join_all() -> Row:
    """5,000,000 pairs: 2,500 anchors x 2,000 partners"""
    tokens = join_tries(np.random.default_rng(SEED))
    watch = Stopwatch()
    forest = ask_all(build_trie(tokens[0]), build_trie(tokens[1]))
    return join_all.__doc__ or "", describe(forest, watch)


def join_half() -> Row:
    """Half of those pairs, chosen at random"""
    rng = np.random.default_rng(SEED)
    tokens = join_tries(rng)
    pairs = np.flatnonzero(rng.random(5_000_000) < 0.5)
    watch = Stopwatch()
    tries = build_trie(tokens[0]), build_trie(tokens[1])
    forest = ask_pairs(*tries, pairs // 2_000, pairs % 2_000)
    return join_half.__doc__ or "", describe(forest, watch)


def filter_documents() -> Row:
    """200,000 documents of 300 tokens, two questions of 55 tokens each"""
    rng = np.random.default_rng(SEED)
    documents = equal_lengths(words(rng, 200_000 * 300), 300)
    questions = equal_lengths(words(rng, 2 * 55), 55)
    watch = Stopwatch()
    forest = ask_all(build_trie(documents), build_trie(questions))
    return filter_documents.__doc__ or "", describe(forest, watch)


def in_own_process(name: str, work: Callable[[], Row]) -> None:
    """Run one case in a fresh process and print it with its peak memory."""

    def child(pipe: Connection) -> None:
        row = work()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
        pipe.send((*row, peak))

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    theirs.close()
    try:
        title, result, peak = ours.recv()
        print(f"| {title} | {result} | {peak:.2f} GiB |", flush=True)
    except EOFError:
        print(f"| {name} | failed | |", flush=True)
    process.join()


BUILDS = (independent, all_equal, long_openings, traces, chain, one_token)
PACKS = (join_all, join_half, filter_documents)


def main() -> None:
    names = [case.__name__ for case in (*BUILDS, *PACKS)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"some of: {', '.join(names)}")
    chosen = parser.parse_args().cases or names
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        parser.error(f"no case {unknown[0]}; there are {', '.join(names)}")
    print("| case | result | peak memory |\n|---|---|--:|", flush=True)
    for case in BUILDS:
        if case.__name__ in chosen:
            in_own_process(case.__name__, lambda case=case: build(case))
    for case in PACKS:
        if case.__name__ in chosen:
            in_own_process(case.__name__, case)


if __name__ == "__main__":
    main()
