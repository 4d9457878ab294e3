"""docs/explain.md shows what `explain` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import covey
from covey.engine.limits import gpu_limits
from covey.engine.local import planned_costs
from covey.estimate.profile import ByteMeasure, ModelProfile
from covey.estimate.rates import Rates
from covey.hardware.devices import gpu_facts
from covey.models.registry import find_known
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS
from covey.testing import PlantedModel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explain.md"
EXAMPLE = re.compile(r"^```sql\n(.*?)^```\n\n```(text|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Counted(ByteMeasure):
    """Counts by bytes, as if that were the model's own way."""

    exact = True


class OnAnH200(PlantedModel):
    """Planted answers, and the profile of Qwen3 4B on an H200."""

    name = "qwen3-4b-fp8"

    def profile(self) -> ModelProfile:
        device, known = gpu_facts("NVIDIA H200"), find_known("qwen3-4b-fp8")
        assert device is not None and known is not None and known.spec is not None
        limits = gpu_limits(known.spec, device.memory - known.spec.parameters)
        return ModelProfile(
            Counted(LAYOUTS[DEFAULT_LAYOUT]),
            planned_costs(known.spec, True, limits.max_batched_tokens),
            device,
            Rates(0.002, 8.0e-6, 1.0e-9, 1.3),
            limits.slots,
        )


def answer(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if len(documents[0]) % 3 == 0 else 0.1


def shown(sql: str, form: str) -> str:
    """What is printed for a statement of the page."""
    query = sql.removeprefix("EXPLAIN ANALYZE\n")
    analyze = query != sql
    model = PlantedModel(answer) if analyze else OnAnH200(answer)
    with covey.connect(model=model, progress=False, cache=False) as con:
        for table in ("tickets", "policies"):
            con.register(table, ROOT / "examples" / f"{table}.csv")
        found = con.explain(query, form, analyze=analyze)
    return json.dumps(json.loads(found), indent=1) if form == "json" else found


def test_the_page_shows_what_explain_prints(request) -> None:
    written = PAGE.read_text(encoding="utf-8")

    def example(match: re.Match[str]) -> str:
        sql, form = match[1], match[2]
        return f"```sql\n{sql}```\n\n```{form}\n{shown(sql, form)}\n```"

    now = EXAMPLE.sub(example, written)
    assert len(EXAMPLE.findall(written)) == 7
    if request.config.getoption("--update-golden"):
        PAGE.write_text(now, encoding="utf-8")
    else:
        assert now == written
