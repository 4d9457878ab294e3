"""The six shapes on another engine, with the token ids that Covey computes.

    python bench/hopper peers CHECKPOINT vllm --path PACKAGES [--shapes a,b] [--json FILE]
    python bench/hopper peers CHECKPOINT quail --path PACKAGES

The peer is started once; `bench/suite/peers` has the scripts, `covey bench peers` their options.
Seconds exclude start-up. Each shape runs `--runs` times, vLLM's prefix cache emptied before each;
quail-engine keeps tokenised documents, which its seconds leave out in any case.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from covey.engine.local import LocalModel
from hopper.harness import Results
from hopper.workloads import NAMES, Shape, make_shapes
from suite.peering import write_work
from suite.plan import Filter, Join, Plan, Scan
from suite.predicates import Predicate
from suite.querying import write_query
from suite.starting import Interpreter, peer_names, run_peer
from suite.tables import Corpus
from suite.tokens import CorpusTokens
from suite.truth import Truth

# No row passes: the shapes are one operator each, and nothing follows it.
_RATE = 0.5


def plan_of(shape: Shape) -> Plan:
    """A shape as a query of one operator."""
    anchors = (f"{shape.name}_anchors", "text")
    scans = (Scan("a", anchors[0]),)
    if not shape.partners:
        predicate = Predicate(shape.name, shape.template, (anchors,), selectivity=_RATE)
        return Plan(shape.name, scans, (Filter(predicate, "a"),), ("a",))
    partners = (f"{shape.name}_partners", "text")
    predicate = Predicate(shape.name, shape.template, (anchors, partners), selectivity=_RATE)
    scans = (*scans, Scan("b", partners[0]))
    return Plan(shape.name, scans, (Join(predicate, ("a", "b")),), ("a", "b"))


def corpus_of(shapes: Sequence[Shape]) -> Corpus:
    """The texts of all shapes as tables."""
    tables = {}
    for shape in shapes:
        for side, texts in (("anchors", shape.anchors), ("partners", shape.partners)):
            ids = [f"{side}{i}" for i in range(len(texts))]
            tables[f"{shape.name}_{side}"] = pa.table({"id": ids, "text": texts})
    nothing = np.empty(0, dtype=np.int64)
    return Corpus(0.0, 0, tables, {}, nothing.astype(bool), nothing, nothing, ())


def truth_of(shapes: Sequence[Shape]) -> Truth:
    """Every answer is FALSE."""
    judged = {}
    for shape in shapes:
        sizes = (len(shape.anchors), len(shape.partners))
        judged[shape.name] = np.zeros(sizes if shape.partners else sizes[:1], dtype=bool)
    return Truth("none", judged, {}, {})


def write_shapes(
    folder: Path, shapes: Sequence[Shape], model: LocalModel, runs: int
) -> dict[Path, str]:
    """Write the work of every shape, `runs` times; returns the shape of each folder."""
    tokens = CorpusTokens(corpus_of(shapes), model.encoder, model.spec.bos)
    truth = truth_of(shapes)
    found = {}
    for shape in shapes:
        for run in range(runs):
            place = folder / f"{shape.name}.{run}"
            # A run is a query of its own to the peer, over the same tables.
            plan = replace(plan_of(shape), id=place.name)
            write_work(place, plan, tokens, truth)
            write_query(place, plan, tokens, truth)
            found[place] = shape.name
    return found


def line(name: str, result: dict[str, Any]) -> str:
    """What a peer did with a shape."""
    if "problem" in result:
        return f"{name:<16}{result['problem']}"
    stages = result["stages"]
    fresh = sum(stage["fresh"] for stage in stages)
    requested = sum(stage["requested"] for stage in stages)
    return (
        f"{name:<16}{sum(stage['prompts'] for stage in stages):9,}{result['seconds']:9.2f}"
        f"{requested:13,}{fresh:11,}{result['seconds'] / fresh * 1e6:10.2f}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("peer", choices=peer_names())
    parser.add_argument("--shapes", default=",".join(NAMES), help="some of them, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of documents")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="the peer's interpreter")
    parser.add_argument("--path", default="", help="a folder of packages for it")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON; see its script")
    parser.add_argument("--seconds", type=float, help="end the peer so long after its start")
    parser.add_argument("--query-seconds", type=float, help="the most that one run may take")


def run(options: argparse.Namespace, results: Results) -> None:
    """Run the shapes asked for."""
    model = LocalModel(options.checkpoint)
    shapes = make_shapes(options.checkpoint, options.shapes, options.scale)
    how = Interpreter(options.python, options.path, options.query_seconds, options.seconds)
    results |= {"peer": options.peer, "shapes": {shape.name: [] for shape in shapes}}
    print(
        f"{'shape':<16}{'prompts':>9}{'seconds':>9}{'requested':>13}{'fresh':>11}{'us/token':>10}"
    )
    with tempfile.TemporaryDirectory(prefix="covey-shapes-") as folder:
        places = write_shapes(Path(folder), shapes, model, options.runs)

        def take(place: Path) -> None:
            result = json.loads((place / "result.json").read_text(encoding="utf-8"))
            name = places[place]
            results["shapes"][name].append(result)
            print(line(name, result), flush=True)
            results.save()

        left = run_peer(options.peer, model.files.path, options.settings, how, list(places), take)
    for place in left:
        print(f"{places[place]:<16}not done in {options.seconds:g} s")
