"""How far apart two sets of margins of the same prompts are."""

from __future__ import annotations

import numpy as np

_COLUMNS = ("flips", "up to", "mean", "shift", "largest", "spread")


def compare(default: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """How far margins of the same prompts are apart; those without an answer are left out.

    Returns:
        prompts compared and missing; answers that turned, per 10,000, and the largest default
        margin of one that did; the mean and the largest difference, the mean with its sign,
        and the standard deviation of the default's margins.
    """
    there = np.isfinite(default) & np.isfinite(other)
    base, found = default[there], other[there]
    off, flipped = np.abs(base - found), (base > 0) != (found > 0)
    return {
        "prompts": len(base),
        "missing": int((~there).sum()),
        "flips": float(flipped.mean() * 1e4) if len(base) else 0.0,
        "largest_flipped": float(np.abs(base[flipped]).max(initial=0.0)),
        "mean": float(off.mean()) if len(base) else 0.0,
        "shift": float((found - base).mean()) if len(base) else 0.0,
        "largest": float(off.max(initial=0.0)),
        "spread": float(base.std()) if len(base) else 0.0,
    }


def print_margins(label: str | None, figures: dict[str, float] | None = None) -> None:
    """One line of figures, that of their names where there is no label.

    Figures may hold "seconds" and "us_a_token", and what `compare` returns, or either.
    """
    if label is None or figures is None:
        names = "".join(f"{name:>10}" for name in ("seconds", "us/token", *_COLUMNS))
        print(f"  {'':<18}{names}")
        return
    times = " " * 20
    if "seconds" in figures:
        times = f"{figures['seconds']:10.2f}{figures['us_a_token']:10.2f}"
    text = ""
    if "flips" in figures:
        keys = ("largest_flipped", "mean", "shift", "largest", "spread")
        text = f"{figures['flips']:10.0f}" + "".join(f"{figures[key]:10.3f}" for key in keys)
        if figures["missing"]:
            text += f"  {figures['missing']:.0f} without an answer"
    print(f"  {label:<18}{times}{text}", flush=True)
