"""Write a tokenizer for random checkpoints under which prompts are as long as with Qwen3.

    python bench/layout_tokenizer.py tokenizer.json

It is the packaged SmolLM2's, with merges added for the capital words of the prompt layout:
with Qwen3's tokenizer ANSWER is one token and DOCUMENT two, with SmolLM2's three and four,
and a join pays for them once a pair.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from covey.engine.local import LocalModel

_MERGES = (("AN", "SW"), ("ANSW", "ER"), ("D", "OC"), ("UM", "ENT"))


def main(arguments: list[str]) -> int:
    """Write the file named; returns the exit status."""
    tokenizer = json.loads(LocalModel("smollm2-135m").encoder.json)
    model = tokenizer["model"]
    last = max(model["vocab"].values(), default=0)
    last = max([last, *(token["id"] for token in tokenizer["added_tokens"])])
    for left, right in _MERGES:
        if left + right not in model["vocab"]:
            last += 1
            model["vocab"][left + right] = last
        as_text = model["merges"] and isinstance(model["merges"][0], str)
        model["merges"].append(f"{left} {right}" if as_text else [left, right])
    Path(arguments[0]).write_text(json.dumps(tokenizer))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
