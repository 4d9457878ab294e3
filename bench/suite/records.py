"""Result files: one JSON a query and engine, with everything needed to judge it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from covey.errors import InputError
from covey.hardware.devices import gpu_name

SCHEMA = 1
_PACKAGES = ("covey", "torch", "duckdb", "numpy", "transformers", "triton", "vllm", "quail-engine")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """One repetition.

    Attributes:
        seconds: of the query, start-up apart.
        device_seconds, host_seconds: of these, on the device and packing; None where the
            engine does not say.
        requested, fresh, minimum: tokens as the engine counts them; None where it does not.
        prompts: prompts answered.
        failed: of these, without an answer, as those longer than the model's context.
        rows: rows of the result, None for a peer, which has no SQL.
        digest: of the sorted rows.
        peak_bytes: most memory of the process or, on a GPU, of the device.
        asked_seconds: until the model had answered all, as the benchmark's owners count; the
            rest is DuckDB's. None where there were no rows, or for a peer.
        processor_seconds: of all threads of the process, planning included.
        chunks, fill, evictions, peak_slots: forward batches, how full, prefixes evicted, and
            the most tokens whose keys and values were held.
    """

    seconds: float
    device_seconds: float | None = None
    host_seconds: float | None = None
    requested: int | None = None
    fresh: int | None = None
    minimum: int | None = None
    prompts: int | None = None
    rows: int | None = None
    digest: str | None = None
    peak_bytes: int | None = None
    asked_seconds: float | None = None
    processor_seconds: float | None = None
    chunks: int | None = None
    fill: float | None = None
    evictions: int | None = None
    peak_slots: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A query on an engine.

    Attributes:
        query, engine: which; `engine` is the label that reports use.
        settings: everything that was chosen, seeds included.
        environment: machine, device, versions and commit.
        start_seconds: from nothing to a model that is ready.
        warm_seconds: of queries that were run before any was measured.
        limits: what the engine may use: tokens of a batch, slots of its KV cache.
        requested, minimum: tokens of the query by the planted truth, the same for all engines
            of one tokenizer.
        sol_seconds: the roofline time of the minimum on this device, None where its facts
            or the model's are not known.
        price_per_hour: US dollars.
        runs: the repetitions.
        problem: why there are none, or None.
        rows_equal: whether rows were compared with DuckDB's, and the outcome.
    """

    query: str
    engine: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    start_seconds: float | None = None
    requested: int | None = None
    minimum: int | None = None
    sol_seconds: float | None = None
    price_per_hour: float | None = None
    runs: list[Run] = field(default_factory=list)
    problem: str | None = None
    rows_equal: bool | None = None
    warm_seconds: float | None = None
    limits: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """Equal for two runs of the same thing."""
        return json.dumps([self.query, self.engine, self.settings], sort_keys=True)


def record_path(folder: Path, engine: str, query: str) -> Path:
    """Where a record lies in a folder of results."""
    return folder / "raw" / f"{engine}.{query}.json"


def write_record(folder: Path, record: Record) -> None:
    """Write a record whole or not at all."""
    path = record_path(folder, record.engine, record.query)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1)
    part = path.with_suffix(".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        InputError: the file is no record of this schema.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        values["runs"] = [Run(**run) for run in values["runs"]]
        return Record(**values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no result file of this suite: {error}") from None


def read_records(folder: Path) -> list[Record]:
    """All records of a folder.

    Raises:
        InputError: there are none, or one is damaged.
    """
    paths = sorted((folder / "raw").glob("*.json"))
    if not paths:
        raise InputError(
            f"{folder} has no result files (raw/*.json). Make some: covey bench suite run --out"
            f" {folder}"
        )
    return [read_record(path) for path in paths]


def recorded(settings: Any) -> dict[str, Any]:
    """Settings, a dataclass, as a record holds them: a model's folder by its name alone."""
    values = asdict(settings)
    return values | {"model": Path(values["model"]).name}


def environment() -> dict[str, Any]:
    """What this process runs on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "gpu": gpu_name(),
        "packages": {name: v for name in _PACKAGES if (v := _version(name)) is not None},
        # A copy of the tree without its history is told what it is a copy of.
        "commit": os.environ.get("COVEY_COMMIT") or _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
