"""How fast a model runs on a device: measured once, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.hardware.paths import cache_folder, write_whole

# Of the way of measuring: rates that were measured in another are measured again.
_METHOD = 2


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of model work: a pass, a fresh token and an attention pair each take their share.

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

    def seconds(self, passes: float, tokens: float, pairs: float) -> float:
        """Expected time of so many passes, fresh tokens and pairs."""
        return passes * self.pass_seconds + tokens * self.token_seconds + pairs * self.pair_seconds


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
