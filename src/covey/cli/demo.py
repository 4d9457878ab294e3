"""`covey demo`: one true query over the example tickets, and how far to trust it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.agreement import Agreement, agreement
from covey.cli.checkout import in_checkout
from covey.cli.guard import guarded
from covey.cli.output import as_text, terminal_width

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

DEMO_MODEL = "smollm2-135m"
TICKETS = "examples/tickets.csv"

# The question of the query comes first; the others are measured beside it. Keys are the
# columns of the hand labels.
QUESTIONS = {
    "mentions_bug": "Does the customer report that software is broken?",
    "wants_refund": "Is the customer asking for a refund?",
    "is_angry": "Is the customer angry?",
}
ASKED = "mentions_bug"


@guarded
def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="A name or a path.")
    ] = DEMO_MODEL,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", help="Show no progress lines on the terminal.")
    ] = False,
) -> None:
    """Filter and group the example tickets, then compare the answers with hand labels."""
    path = in_checkout(TICKETS, "covey demo")

    import covey

    with covey.connect(model, progress=False if no_progress else None) as connection:
        text = demo_query(path)
        typer.echo(f"{text}\n")
        run = connection.run(text)
        typer.echo(as_text(run.arrow(), terminal_width()))
        typer.echo(f"\n{run.report}\n")
        measured = connection.run(measuring_query(path)).arrow()
        typer.echo(comparison({q: measure(measured, c) for c, q in QUESTIONS.items()}))
    if model == DEMO_MODEL:
        typer.echo(f"\n{SMALL_MODEL}")


def demo_query(path: Path) -> str:
    """The query that the demo shows."""
    return (
        "SELECT product, count(*) AS tickets\n"
        f"FROM {_quoted(str(path))}\n"
        f"WHERE created >= DATE '2026-01-01'\n"
        f"  AND AI.IF(PROMPT({_quoted(QUESTIONS[ASKED] + ' {0}')}, body))\n"
        "GROUP BY product ORDER BY tickets DESC, product"
    )


def measuring_query(path: Path) -> str:
    """Each question's hand label and margin, for every ticket."""
    columns = ",\n  ".join(
        f"{column}, AI.MARGIN(PROMPT({_quoted(question + ' {0}')}, body)) AS {column}_margin"
        for column, question in QUESTIONS.items()
    )
    return f"SELECT {columns}\nFROM {_quoted(str(path))}"


def measure(table: pa.Table, column: str) -> Agreement:
    """Agreement of one question's margins with its labels, rows without either left out."""
    pairs = [
        (label, margin)
        for label, margin in zip(
            table[column].to_pylist(), table[f"{column}_margin"].to_pylist(), strict=True
        )
        if label is not None and margin is not None and not math.isnan(margin)
    ]
    return agreement([label for label, _ in pairs], [margin for _, margin in pairs])


def comparison(measured: dict[str, Agreement]) -> str:
    """The figures as text, each beside what guessing would reach."""
    lines = ["Against labels given by hand:"]
    for question, got in measured.items():
        lines.append(f"  {question}")
        lines.append(
            f"    {got.accuracy:.0%} of {got.rows:,} answers agree"
            f" (always giving the commoner answer: {got.majority:.0%});"
            f" balanced accuracy {got.balanced:.0%} (chance: 50%);"
            f" a ticket labelled TRUE outscores one labelled FALSE {got.auc:.0%} of the"
            " time (chance: 50%)"
        )
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


SMALL_MODEL = "SmolLM2 has 135 million parameters. It shows the machinery; it is no judge."
