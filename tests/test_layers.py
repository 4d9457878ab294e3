"""The architecture, checked: imports go downward, and planning never loads torch.

Every module's imports are read from its source, those inside functions and under
TYPE_CHECKING included: a lazy import is still a dependency.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import covey

ROOT = Path(covey.__file__).parent

# A layer may import the layers of lower rank, and itself. Layers of one rank may not
# import each other: the optimizer makes a plan, execution runs it, neither knows the other.
RANK = {
    "__main__": 12,
    "cli": 11,
    "api": 10,
    "optimizer": 9,
    "execution": 9,
    "sql": 8,
    "testing": 8,
    "engine": 7,
    "estimate": 6,
    "plan": 5,
    "logical": 4,
    "prompts": 3,
    "models": 2,
    "kernels": 1,
    "hardware": 0,
    "arrays": -1,
    "errors": -1,
}
# `import covey` is the api by another name: it may hold what users call, nothing else.
FACADE = "covey"
BEHIND_THE_FACADE = {"api", "errors"}

# Where torch may be named at all. The modules of these packages that planning needs are
# found by the subprocess tests below, which see what is really loaded.
TORCH_LAYERS = {"kernels", "models", "engine"}

# What `import covey` may load besides the standard library; docs/architecture.md says so.
IMPORTED_WITH_COVEY = {"duckdb", "numpy", "pyarrow", "sqlglot"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str, *, lazy: bool = True) -> set[str]:
    """Modules that `module` imports by name; `lazy` includes those inside functions."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree) if lazy else top_level(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(from_import(node, package))
    return found


def top_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run on import: not in functions, not under TYPE_CHECKING."""
    found: list[ast.stmt] = []
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        found.append(node)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            pending.extend(x for x in ast.iter_child_nodes(node) if isinstance(x, ast.stmt))
    return found


def from_import(node: ast.ImportFrom, package: str) -> set[str]:
    """`from a import b` names a.b where that is a module, else a."""
    base = node.module or ""
    if node.level:
        parent = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parent, *([base] if base else [])])
    names = {f"{base}.{alias.name}" for alias in node.names}
    return {name if name in MODULES else base for name in names}


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else FACADE


def test_every_package_has_a_rank() -> None:
    assert {layer(m) for m in MODULES} - {FACADE} <= set(RANK)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_downward_only(module: str) -> None:
    own = layer(module)
    for imported in imports(module):
        if imported != "covey" and not imported.startswith("covey."):
            continue
        other = layer(imported)
        if own == FACADE:
            assert other in BEHIND_THE_FACADE, f"covey imports {imported}"
        elif other == FACADE:
            assert own == "cli", f"{module} imports covey itself: only the cli may"
        else:
            assert own == other or RANK[own] > RANK[other], (
                f"{module} ({own}) imports {imported} ({other}): upward or sideways"
            )


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {m: {i for i in imports(m, lazy=False) if i in MODULES} - {m} for m in MODULES}
    settled: set[str] = set()
    while ready := {m for m in graph if m not in settled and graph[m] <= settled}:
        settled |= ready
    assert set(graph) - settled == set(), "these import each other, or something that does"


@pytest.mark.parametrize("module", sorted(m for m in MODULES if layer(m) not in TORCH_LAYERS))
def test_only_the_model_layers_name_torch(module: str) -> None:
    named = {name.split(".")[0] for name in imports(module)}
    assert not named & {"torch", "triton", "transformers"}


def loaded_after(program: str) -> set[str]:
    """Top-level modules loaded in a fresh process after `program` ran."""
    source = (
        f"{program}\nimport json, sys\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return set(json.loads(finished.stdout.splitlines()[-1]))


def third_party(modules: set[str]) -> set[str]:
    public = {m for m in modules if not m.startswith("_") and m not in sys.stdlib_module_names}
    return public - third_party_at_start()


def third_party_at_start() -> set[str]:
    """Modules that this Python loads by itself, such as an editable install's finder."""
    return {
        m for m in loaded_after("") if not m.startswith("_") and m not in sys.stdlib_module_names
    }


def test_importing_covey_loads_only_what_is_documented() -> None:
    assert third_party(loaded_after("import covey")) - {"covey"} <= IMPORTED_WITH_COVEY


PLAN = """
import pyarrow as pa
import covey
with covey.connect("smollm2-135m") as connection:
    connection.register("t", pa.table({"id": [1, 2], "body": ["a", "b"]}))
    text = connection.explain(
        "SELECT count(*) FROM t WHERE id > 0 AND AI.IF(PROMPT('Is it red? {0}', body))"
    )
assert text.strip()
"""


def test_planning_and_explain_never_load_torch() -> None:
    assert not loaded_after(PLAN) & {"torch", "transformers", "triton"}


def test_the_help_page_loads_neither_torch_nor_duckdb() -> None:
    loaded = loaded_after(
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from covey.cli.app import app\n"
        "assert 'explain' in CliRunner().invoke(app, ['--help']).stdout"
    )
    assert not loaded & {"torch", "duckdb", "pyarrow", "sqlglot"}
