"""Loads mutated models, one a line of its input, in a process of bounded memory.

    python -m fuzz_models.worker FOLDER

FOLDER holds the bases. The answer to a line is a JSON object: "loaded" with the model's
fingerprint and margins, "refused" with what a user is told, or "raw" with a traceback.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.engine.loaded import load_engine
from covey.errors import ModelError
from covey.models.files import ModelFiles
from fuzz_models.mutations import mutate
from models.batches import prompts_batch

MEMORY = 1 << 30  # beside what the libraries take
TEXT = "the customer asks for a refund of the order é 12"


def outcome(model: Path) -> dict[str, Any]:
    """What becomes of loading a model and asking it once."""
    try:
        files = ModelFiles(model)
        engine = load_engine("m", files, "cpu", "raw-v1")
        ids = files.encoder.ids(TEXT)[: engine.limits.context]
        if not ids:
            return {"kind": "refused", "reason": "nothing to ask"}
        found, _ = engine._make_runner(64).launch(prompts_batch([ids, ids[:1]])).result()
    except ModelError as error:
        return {"kind": "refused", "reason": str(error)}
    except BaseException:
        return {"kind": "raw", "trace": traceback.format_exc()}
    assert np.isfinite(found).all()
    return {"kind": "loaded", "fingerprint": engine.fingerprint, "margins": found.tolist()}


def main() -> None:
    bases = Path(sys.argv[1])
    torch.set_num_threads(1)
    for base in sorted(bases.iterdir()):  # whatever is imported late is imported now
        assert outcome(base)["kind"] == "loaded", outcome(base)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    for line in sys.stdin:
        mutation = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            source = bases / mutation["base"]
            model = Path(folder) / source.name
            if source.is_dir():
                shutil.copytree(source, model)
            else:
                shutil.copyfile(source, model)
            mutate(model, mutation)
            print(json.dumps(outcome(model)), flush=True)


if __name__ == "__main__":
    main()
