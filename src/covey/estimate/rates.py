"""How fast a model runs on a device.

Measured once (`covey.engine.timing`) and kept in the user's cache folder; assumed by the
datasheet before that.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.estimate.cost import Work
from covey.hardware.devices import Device
from covey.hardware.paths import cache_folder, write_whole
from covey.models.spec import ModelCosts

# Shares of the datasheet's peaks that a run is taken to reach where nothing was measured,
# and how far off that may be. On an H200 the products of Qwen3-4B reach 0.58 and attention
# 0.6 of the peak (docs/performance.md has the figures of the whole model).
ASSUMED_SHARE = 0.5
ASSUMED_SPREAD = 2.5

# Of the way of measuring: rates that were measured in another are measured again.
_METHOD = 2


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of model work: a pass, a fresh token and an attention pair each take their share.

    They are fitted to whole passes, so that they hold what a roofline leaves out: glue,
    launches, the unused part of a device. Keys and values are read with the pairs.

    Attributes:
        pass_seconds: of a pass, whatever it holds: reading weights, launching.
        token_seconds: of a fresh token.
        pair_seconds: of a (query, key) pair.
        spread: how far off a time by these rates may be, as a factor of at least 1.
    """

    pass_seconds: float
    token_seconds: float
    pair_seconds: float
    spread: float

    def seconds(self, work: Work) -> float:
        """The time that a run is expected to take."""
        return (
            work.passes * self.pass_seconds
            + work.fresh * self.token_seconds
            + work.pairs * self.pair_seconds
        )


def assumed_rates(costs: ModelCosts, device: Device) -> Rates:
    """Rates by the datasheet alone, for a device that nothing was measured on."""
    products = device.peak(costs.compute.value) * ASSUMED_SHARE
    attention = device.peak(costs.attention.value) * ASSUMED_SHARE
    weights = costs.projection_bytes + costs.mlp_bytes
    return Rates(
        pass_seconds=weights / (device.bandwidth * ASSUMED_SHARE),
        token_seconds=(costs.projection_flops + costs.mlp_flops) / products,
        pair_seconds=costs.pair_flops / attention,
        spread=ASSUMED_SPREAD,
    )


def read_rates(device: str, model: str, kernels: str | None = None) -> Rates | None:
    """The rates measured for a model on a device, None where there are none yet.

    Args:
        device: its name.
        model: what names the model and how it is computed.
        kernels: what must have run it; None takes what ran it last.
    """
    try:
        kept = json.loads(_file(device, model).read_text(encoding="utf-8"))
        if kept["method"] != _METHOD or (kernels is not None and kept["kernels"] != kernels):
            return None
        return Rates(**kept["rates"])
    except (OSError, ValueError, KeyError, TypeError):
        # A file that is missing, cut short or of another version is measured again.
        return None


def write_rates(device: str, model: str, kernels: str, rates: Rates) -> None:
    """Keep rates for `read_rates`; where the folder cannot be written they are lost."""
    kept = {"method": _METHOD, "device": device, "model": model, "kernels": kernels}
    kept |= {"rates": asdict(rates)}
    write_whole(_file(device, model), json.dumps(kept, indent=1).encode())


def _file(device: str, model: str) -> Path:
    name = hashlib.sha256(f"{device}\n{model}".encode()).hexdigest()[:24]
    return cache_folder() / "rates" / f"{name}.json"
