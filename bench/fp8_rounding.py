"""How many answers of a trained model FP8 turns, on a processor.

    python bench/fp8_rounding.py [--model smollm2-135m] [--tickets 150]

Three questions about the first tickets of examples/ are asked of the model in float32, and with
weights and the inputs of all products rounded to FP8 in blocks and groups of 64, where an FP8
checkpoint has 128 but SmolLM2's width of 576 has no whole ones. Products are summed in float32, so
that rounding is all that differs. Printed are the answers that turned, per 10,000, and the largest
float32 margin of one that did; the mean and the largest difference of margins, and the mean with
its sign; and the spread of the margins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import covey
from covey.engine import loaded
from covey.engine.local import LocalModel
from covey.kernels.base import Activation, AttentionConfig, Weight
from covey.kernels.fp8_format import FP8_LEAST, FP8_MAX
from covey.kernels.reference import ReferenceKernels
from covey.kernels.scales import quantise
from hopper_margins import compare, print_margins

_GROUP = 64
QUESTIONS = (
    "Is the customer asking for a refund? {0}",
    "Does the customer sound angry? {0}",
    "Is this about a delivery? {0}",
)
_TICKETS = Path(__file__).parents[1] / "examples" / "tickets.csv"


class RoundedKernels(ReferenceKernels):
    """The reference, inputs of products rounded to FP8 and widened again."""

    def _activation(self, x: Tensor) -> Activation:
        values, scales = quantise(x, _GROUP, torch.float8_e4m3fn)
        groups = values.float().view(*scales.shape, -1)
        return Activation((groups * scales[:, :, None]).flatten(1))


def rounded_blocks(weight: Weight) -> Weight:
    """A matrix rounded in blocks of 64 x 64, in float32."""
    rows, columns = weight.values.shape
    blocks = weight.values.view(rows // _GROUP, _GROUP, columns // _GROUP, _GROUP)
    scales = blocks.abs().amax((1, 3), keepdim=True).clamp(min=FP8_LEAST) / FP8_MAX
    return Weight(((blocks / scales).to(torch.float8_e4m3fn).float() * scales).view(rows, columns))


def margins(model: LocalModel, tickets: int) -> np.ndarray:
    """The margins of all prompts."""
    with covey.connect(model, cache=False, progress=False) as con:
        con.duckdb.execute(
            f"CREATE TABLE t AS SELECT body FROM '{_TICKETS}' WHERE body <> '' LIMIT {tickets}"
        )
        asked = ", ".join(f"AI.MARGIN(PROMPT('{question}', body))" for question in QUESTIONS)
        return np.array(con.sql(f"SELECT {asked} FROM t").fetchall()).T.ravel()


def rounded_margins(name: str, tickets: int) -> np.ndarray:
    """The same with everything rounded; what the engine loads with is put back."""
    chosen, rounding = loaded.choose_kernels, loaded.quantise_weight

    def choose(geometry: AttentionConfig, _: Any, dtype: torch.dtype, *__: Any) -> tuple[Any, None]:
        return RoundedKernels(geometry, torch.device("cpu"), dtype), None

    loaded.choose_kernels = choose
    loaded.quantise_weight = rounded_blocks
    try:
        return margins(LocalModel(name, device="cpu", fast="fp8-blocks"), tickets)
    finally:
        loaded.choose_kernels, loaded.quantise_weight = chosen, rounding


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rounding."""
    parser = argparse.ArgumentParser(description="How many answers FP8 turns.")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tickets", type=int, default=150)
    options = parser.parse_args(arguments)
    exact = margins(LocalModel(options.model, device="cpu"), options.tickets)
    print_margins(None)
    found = rounded_margins(options.model, options.tickets)
    print_margins("groups of 64", compare(exact, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
