"""Writes the oracle's rows into topic files: python tests/slt/regenerate.py [FILE ...]

Only rows are written. The calls are reasoned by hand and stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def rewritten(path: Path) -> str:
    """The text of a topic file with the rows that the oracle gives."""
    from slt.runner import oracle_rows
    from slt.topic import read_topic

    topic = read_topic(path)
    lines = path.read_text().splitlines()
    for record, rows in reversed(list(zip(topic.records, oracle_rows(topic), strict=True))):
        if record.kind != "query":
            continue
        start = lines.index("----", record.line) + 1
        lines[start : start + len(record.rows)] = rows
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Rewrite the files named, or all."""
    sys.path.insert(0, str(FOLDER.parent))
    for path in [Path(name) for name in arguments] or sorted(FOLDER.glob("*.slt")):
        path.write_text(rewritten(path))


if __name__ == "__main__":
    main(sys.argv[1:])
