"""`covey cache`: the answers that are kept between runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.destination import destination
from covey.cli.guard import in_good_order
from covey.cli.table import SHOWN_ROWS, render
from covey.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from covey.execution.store.store import AnswerStore

app = typer.Typer(no_args_is_help=True, help="Show and manage the answers kept between runs.")

Folder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="The answer store; else the one COVEY_CACHE names, or the platform's.",
    ),
]


@app.command()
def ls(cache: Folder = None) -> None:
    """List the questions that have answers, the last written first."""
    table = _store(cache).questions()
    if table is None or not table.num_rows:
        typer.echo("No answers are stored.")
        return
    rows = [
        (row["model"], row["answers"], f"{row['last_written']:%Y-%m-%d %H:%M}", _asked(row))
        for row in table.slice(0, SHOWN_ROWS).to_pylist()
    ]
    names = ["model", "answers", "last written (UTC)", "question"]
    typer.echo(render(names, rows, total_rows=table.num_rows, width=None))


@app.command()
def show(cache: Folder = None) -> None:
    """Say where the answers lie, how many there are, and the limits."""
    found = _store(cache).summary()
    days = found["max_days"]
    typer.echo(
        f"file       {found['path']}\n"
        f"answers    {found['answers']:,} to {found['questions']:,} questions\n"
        f"size       {_megabytes(found['bytes'])} of at most {_megabytes(found['max_bytes'])}\n"
        f"kept for   {'any time' if days is None else f'{days:g} days'}"
    )


@app.command()
def clear(
    cache: Folder = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Only the answers of this model.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DAYS", help="Only answers of this age or more."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All answers.")] = False,
) -> None:
    """Delete stored answers; what is asked again then costs model time again."""
    if everything == (model is not None or older_than is not None):
        raise InputError("Say which answers to delete: --model, --older-than, or --all.")
    deleted = _store(cache).clear(model, older_than)
    typer.echo(f"{deleted:,} answers deleted.")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .parquet or .csv file.")],
    cache: Folder = None,
) -> None:
    """Write all stored answers to a file: question, digests of the documents, scores."""
    if file.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{file} is neither .parquet nor .csv. Name a file of either kind.")
    target = destination(None, file)
    store = _store(cache)
    written = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in batches:
            written += batch.num_rows
            yield batch

    with in_good_order(), closing(store.export()) as batches:
        target.write(counted(batches))
    typer.echo(f"{written:,} answers written to {file}.")


def _store(folder: Path | None) -> AnswerStore:
    from covey.execution.store.location import CacheOptions
    from covey.execution.store.store import AnswerStore

    return AnswerStore(CacheOptions(folder))


def _asked(row: dict[str, object]) -> str:
    """A question as one line."""
    labels = row["labels"]
    choices = f" [{', '.join(map(str, labels))}]" if isinstance(labels, list) and labels else ""
    return " ".join(f"{row['template']}{choices}".split())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
