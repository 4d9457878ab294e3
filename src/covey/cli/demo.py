"""`covey demo`: one true query over the example tickets, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.agreement import figures
from covey.cli.checkout import in_checkout
from covey.cli.destination import Destination, Format
from covey.cli.guard import connected
from covey.cli.table import render

if TYPE_CHECKING:
    import pyarrow as pa

DEMO_MODEL = "smollm2-135m"
TICKETS = "examples/tickets.csv"
# English, and recent enough to be read in a minute on two cores.
ROWS = "language = 'en' AND created >= DATE '2026-07-01'"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the SQL over the hand labels that is its right answer."""

    question: str
    label: str

    @property
    def prompt(self) -> str:
        from covey.sql.text import quote_text

        return f"PROMPT({quote_text(self.question + ' {0}')}, body)"


# The first is the query's; the others are measured beside it.
QUESTIONS = (
    Asked("Is the customer polite and calm?", "NOT is_angry"),
    Asked("Is the customer asking for a refund?", "wants_refund"),
    Asked("Does the customer report a bug?", "mentions_bug"),
)

# What the figures mean for the demo's own model; another model may well do better.
SMALL_MODEL = (
    "SmolLM2 has 135 million parameters: enough to show the machinery, too few to judge.\n"
    "Whatever it is asked, TRUE comes easier to it on a friendly message than on a cross one,\n"
    "so it does better than chance only where the question is about tone. What a customer\n"
    "wants or reports takes a larger model: covey demo --model qwen3-0.6b, or a path."
)


def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="A name or a path.")
    ] = DEMO_MODEL,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", help="Show no progress lines on the terminal.")
    ] = False,
) -> None:
    """Filter and group example tickets, then compare answers with hand labels."""
    path = in_checkout(TICKETS, "covey demo")
    progress = False if no_progress else None
    # The demo shows the model at work, every time.
    with connected(model, progress=progress, cache=False) as connection:
        connection.register("tickets", path)
        typer.echo(f"{shown_query()}\n")
        run = connection.run(shown_query())
        Destination(Format.TABLE, None).write(run.batches())
        typer.echo(f"\n{run.report}\n")
        measured = connection.run(measuring_query()).arrow()
    typer.echo(comparison(measured))
    if model == DEMO_MODEL:
        typer.echo(f"\n{SMALL_MODEL}")


def shown_query() -> str:
    """The query that the demo shows."""
    return (
        "SELECT product, count(*) AS calm_tickets\n"
        "FROM tickets\n"
        f"WHERE {ROWS}\n"
        f"  AND AI.IF({QUESTIONS[0].prompt})\n"
        "GROUP BY product ORDER BY calm_tickets DESC, product"
    )


def measuring_query() -> str:
    """Each question's hand label and margin, for the tickets of the shown query."""
    columns = ",\n  ".join(
        f"{asked.label} AS label_{i}, AI.MARGIN({asked.prompt}) AS margin_{i}"
        for i, asked in enumerate(QUESTIONS)
    )
    return f"SELECT {columns}\nFROM tickets WHERE {ROWS}"


def comparison(measured: pa.Table) -> str:
    """How well the answers of `measuring_query` agree with the labels, beside guessing."""
    names = ["question", "right answer", "tickets", "agree", "commoner", "balanced", "AUC"]
    rows = []
    for i, asked in enumerate(QUESTIONS):
        labels, margins = (measured[f"{name}_{i}"].to_pylist() for name in ("label", "margin"))
        rows.append((asked.question, asked.label, *figures(labels, margins)))
    return (
        "Answers against hand labels:\n"
        + render(names, rows, total_rows=len(rows), width=None)
        + "\nagree: share of answers that are right; commoner: what one answer for all reaches."
        "\nbalanced: the right share, TRUE and FALSE labels weighing alike; chance is 50%."
        "\nAUC: how often a TRUE ticket scores above a FALSE one; chance is 0.50."
    )
