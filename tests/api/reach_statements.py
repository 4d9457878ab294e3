"""Random statements against `allow` and `read_only`; run as a process of its own.

Arguments are a seed, a number of statements, a folder that is allowed and one that is not,
which a link inside the first leads to. It ends with an error where anything from outside is
seen, or the connection does not work afterwards. The last line of a run that DuckDB itself
ends is the statement that did it.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import covey
from covey.api.capabilities import FUNCTIONS, SETTINGS
from covey.testing import PlantedModel

STATEMENTS_A_CONNECTION = 100
# What these do to the connection is what they are for.
LEFT_OUT = {
    *("max_execution_time", "memory_limit", "max_memory", "operator_memory_limit", "schema"),
    *("search_path", "sleep_ms", "pg_sleep", "max_temp_directory_size", "lock_configuration"),
    *("threads", "worker_threads", "external_threads", "async_threads", "block_allocator_memory"),
    *("default_block_size", "warnings_as_errors", "catalog_error_max_schemas"),
}
WORD = [name for name in FUNCTIONS if name.replace("_", "").isalnum() and name not in LEFT_OUT]
FORMS = [
    "COPY (SELECT 1 AS a) TO {p}",
    "COPY (SELECT 1 AS a) TO {p} (FORMAT parquet, PARTITION_BY (a))",
    "CREATE OR REPLACE TABLE c (a VARCHAR); COPY c FROM {p}",
    "ATTACH {p} AS d{n}",
    "ATTACH {p} AS d{n} (READ_ONLY)",
    "ATTACH OR REPLACE {p}",
    "EXPORT DATABASE {p}",
    "IMPORT DATABASE {p}",
    "INSTALL {p}",
    "LOAD {p}",
    "FORCE INSTALL httpfs FROM {p}",
    "UPDATE EXTENSIONS",
    "CREATE PERSISTENT SECRET s{n} IN local_file (TYPE http, BEARER_TOKEN 'x')",
    "CREATE SECRET (TYPE s3)",
    "DROP SECRET s{n}",
    "CREATE OR REPLACE VIEW v AS FROM {p}; FROM v",
    "CREATE OR REPLACE TEMP VIEW v AS FROM read_text({p}); FROM v",
    "CREATE OR REPLACE MACRO m(x) AS TABLE FROM read_text(x); FROM m({p})",
    "CREATE OR REPLACE MACRO m(x) AS TABLE FROM glob(x); FROM m({p})",
    "SET VARIABLE p = {p}; FROM read_text(getvariable('p'))",
    "SET VARIABLE p = {p}; FROM glob(getvariable('p'))",
    "PREPARE s AS FROM read_text($1); EXECUTE s({p})",
    "PREPARE s AS FROM glob(?); EXECUTE s({p})",
    "FROM {p}",
    "FROM {i}",
    "SELECT * FROM {p} AS x, LATERAL (FROM glob({p}))",
    "FROM read_csv({p} || '')",
    "FROM read_text([{p}, {p}])",
    "FROM query('FROM read_text(' || {q} || ')')",
    "FROM query_table({p})",
    "EXPLAIN ANALYZE FROM {p}",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO {p}",
    "DESCRIBE FROM {p}",
    "SUMMARIZE FROM {p}",
    "CREATE OR REPLACE TABLE c AS FROM {p}; FROM c",
    "INSERT INTO c SELECT content FROM read_text({p}); FROM c",
    "PIVOT (FROM {p}) ON a USING count(*)",
    "SELECT AI.IF(PROMPT('{{0}}', content)), content FROM read_text({p})",
    "SELECT AI.CLASSIFY('x', (SELECT list(content) FROM read_text({p})))",
    "SELECT AI.CLASSIFY('x', (SELECT list(file) FROM glob({p})))",
    "CALL enable_logging(storage => 'file', storage_path => {p})",
    "CALL enable_profiling(format => 'json', save_location => {p})",
    "PRAGMA profiling_output = {p}",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    "USE memory",
    "COMMENT ON TABLE c IS {p}",
    "VACUUM",
    "DETACH d{n}",
    "COPY FROM DATABASE memory TO d{n}",
    "SELECT current_setting({s})",
    "FROM duckdb_settings()",
    "SHOW ALL TABLES",
]


class Statements:
    """Draws statements."""

    def __init__(self, chance: random.Random, inside: Path, outside: Path) -> None:
        self.chance = chance
        self.paths = [
            *(f"{inside}/t.csv", f"{inside}/new_{{n}}.csv", f"{inside}/link", f"{inside}/link/*"),
            *(f"{inside}/*", f"{inside}/*/*", f"{inside}/**/*", f"{inside}/l*/known.csv"),
            *(f"{inside}/leads_out.csv", f"{inside}/../{outside.name}/*", f"{inside}/*/../../*/*"),
            *(f"{outside}/known.csv", f"{outside}/*", f"{outside}", f"{outside}/new_{{n}}.db"),
            *(f"{inside}/link/known.csv", f"{inside}/**/known.csv", f"{inside}/[l]*/?*"),
            *(f"{outside}/**", f"file://{outside}/known.csv", f"file:{outside}/known.csv"),
            *("/proc/self/environ", "/proc/self/cwd/*", "/dev/stdin", "http://localhost/x.csv"),
            *("s3://bucket/x.parquet", "~/.duckdbrc", "~/*", ".", "..", "httpfs"),
        ]

    def draw(self, number: int) -> str:
        kinds: list[Callable[[], str]] = [
            self.scalar, self.table, self.call, self.pragma, self.setting, self.form, self.form
        ]  # fmt: skip
        text = self.chance.choice(kinds)()
        return text.replace("{n}", str(number))

    def path(self) -> str:
        return self.chance.choice(self.paths)

    def value(self) -> str:
        path = self.path()
        return self.chance.choice(
            [
                *(f"'{path}'", f"'{path}'", f"'{path}'", f"['{path}']", "0", "3", "-1", "NULL"),
                *("true", "'x'", "[1, 2]", "{'a': 1}", "1.5", "DATE '2026-01-01'", "x -> x"),
                *(f"'{self.setting_name()}'", "'json'", "'file'", "''::BLOB", "'main'", "a"),
            ]
        )

    def values(self) -> str:
        given = [self.value() for _ in range(self.chance.randrange(4))]
        names = ("storage_path", "storage", "filename", "path", "format", "save_location", "schema")
        if not self.chance.randrange(4):
            given.append(f"{self.chance.choice(names)} => {self.value()}")
        return ", ".join(given)

    def function(self) -> str:
        name = self.chance.choice(WORD)
        before = ("", "", "", "system.main.", "main.")
        written = self.chance.choice([name, name, name.upper(), f'"{name}"', f"{name} /* ( */ "])
        return f"{self.chance.choice(before)}{written}({self.values()})"

    def scalar(self) -> str:
        return f"SELECT {self.function()} FROM (SELECT 1 AS a)"

    def table(self) -> str:
        text = f"FROM {self.function()}"
        around = ("{}", "{} LIMIT 3", "SELECT (SELECT 1 {} LIMIT 1)", "WITH w AS ({}) FROM w")
        return self.chance.choice(around).format(text) if "{" not in text else text

    def call(self) -> str:
        return f"CALL {self.function()}"

    def pragma(self) -> str:
        name = self.chance.choice([self.setting_name(), self.chance.choice(WORD)])
        ends = ("", f"({self.values()})", f" = {self.value()}")
        return f"PRAGMA {name}{self.chance.choice(ends)}"

    def setting_name(self) -> str:
        return self.chance.choice([name for name in SETTINGS if name not in LEFT_OUT])

    def setting(self) -> str:
        name, scope = self.setting_name(), self.chance.choice(("", "GLOBAL ", "SESSION "))
        if not self.chance.randrange(4):
            return f"RESET {scope}{name}"
        sign = self.chance.choice((" = ", " TO "))
        return f"SET {scope}{name}{sign}{self.value()}"

    def form(self) -> str:
        path = self.path()
        form = self.chance.choice(FORMS)
        if "{{0}}" in form:
            form = form.replace("{{0}}", "{0}")
        for mark, text in (
            ("{p}", f"'{path}'"),
            ("{i}", f'"{path}"'),
            ("{q}", "'''" + path + "'''"),
            ("{s}", f"'{self.setting_name()}'"),
        ):
            form = form.replace(mark, text)
        return form


def works(con: covey.Connection) -> bool:
    """Whether a plain query and one of the model give their rows."""
    asked = "SELECT x FROM (VALUES ('a'), ('b'), (NULL)) AS v(x) WHERE AI.IF(PROMPT('? {0}', x))"
    return con.run("SELECT 40 + 2 AS x").arrow()["x"].to_pylist() == [42] and con.run(
        asked
    ).arrow()["x"].to_pylist() == ["a"]


def look(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*"))


def _shown(table: pa.Table) -> str:
    try:
        return repr(table.to_pydict())
    except (OverflowError, ValueError):
        # Python's dates end where DuckDB's go on: those of test_all_types().
        return table.to_string(preview_cols=table.num_columns)


def main(seed: int, count: int, inside: Path, outside: Path, secrets: list[str]) -> None:
    model = PlantedModel(
        lambda question, documents: 0.9 if documents == ("a",) else 0.1,
        lambda question, labels, documents: 0,
    )
    before = look(outside)
    access = itertools.cycle(
        [{"allow": [inside]}, {"allow": [inside], "read_only": True}, {"read_only": True}]
    )
    for first in range(0, count, STATEMENTS_A_CONNECTION):
        options = next(access)
        chance = random.Random(seed * 1_000_003 + first)
        drawn = Statements(chance, inside, outside)
        with covey.connect(model, cache=False, progress=False, **options) as con:
            con.register("t", pa.table({"a": ["x", "y"]}))
            for number in range(first, min(first + STATEMENTS_A_CONNECTION, count)):
                text = drawn.draw(number)
                print(f"{number} {options} {text}", flush=True)
                changes = text.startswith(("SET", "RESET", "PRAGMA", "CALL"))
                try:
                    shown = _shown(con.run(text).arrow())
                except covey.CoveyError as error:
                    shown, changes = str(error), False
                hidden = "allow" in options and any(secret in shown for secret in secrets)
                assert not hidden, f"shows what is outside: {shown}"
                if changes or number % 25 == 24:
                    assert works(con), "the connection is broken"
        assert look(outside) == before, "what is outside has changed"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
