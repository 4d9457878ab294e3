"""The suite's command line; `covey bench suite` and its neighbours call it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from covey.errors import CoveyError, InputError
from suite import counts
from suite.choose import GROUPS, by_interest, chosen
from suite.compare import comparison, side
from suite.peering import Interpreter, PeerSettings, PeerSuite, peer_names
from suite.predicates import literals
from suite.report import write_report
from suite.run import Settings, Suite
from suite.shapes import SCALES
from suite.smoke import SCALE as SMOKE
from suite.sql import to_sql
from suite.tables import DEFAULT_SEED
from suite.truth import MODES
from suite.words import make_tokenizer, write_tokenizer

Commands = argparse._SubParsersAction


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="covey bench", description="The benchmark suite: 50 AI-SQL queries over made tables."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for add in (_run, _peers, _sql, _tokenizer, _published, _report, _compare):
        add(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except CoveyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _work_options(command: argparse.ArgumentParser) -> None:
    """What every command that runs queries takes."""
    command.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="QUERY",
        help=f"queries, families or groups ({', '.join(GROUPS)}); else all",
    )
    size = command.add_mutually_exclusive_group()
    size.add_argument("--scale", type=float, default=0.01, help=f"one of {SCALES}")
    size.add_argument(
        "--smoke", dest="scale", action="store_const", const=SMOKE, help="a few short rows"
    )
    command.add_argument("--seed", type=int, default=DEFAULT_SEED)
    command.add_argument("--truth", choices=MODES, default=MODES[0], help="the planted answers")
    command.add_argument("--repeats", type=int, default=1)
    command.add_argument("--price", type=float, help="US dollars an hour of the device")
    command.add_argument("--out", type=Path, default=Path(".bench/suite"), help="results folder")


def _run(commands: Commands) -> None:
    command = commands.add_parser("run", help="run queries through Covey")
    _work_options(command)
    command.add_argument(
        "--seconds",
        type=float,
        help="start no query that would not end so many seconds after the command began",
    )
    command.add_argument("--model", default="planted", help="planted, a known name or a path")
    command.add_argument(
        "--own-answers",
        action="store_true",
        help="let a real model's answers through instead of the planted ones",
    )
    command.add_argument(
        "--warm-up", action="store_true", help="run a few small queries before any is measured"
    )
    command.add_argument("--check", action="store_true", help="compare rows with DuckDB's")

    def run(options: argparse.Namespace) -> None:
        settings = Settings(
            model=options.model,
            scale=options.scale,
            seed=options.seed,
            truth=options.truth,
            forced=not options.own_answers,
            repeats=options.repeats,
            check=options.check and not options.own_answers,
            price_per_hour=options.price,
        )
        suite = Suite(settings, options.out, _say)
        if options.warm_up:
            suite.warm_up()
        suite.run(by_interest(chosen(options.only)), options.seconds)
        _say(f"Results are in {options.out}. Next: covey bench report {options.out}")

    command.set_defaults(run=run)


def _peers(commands: Commands) -> None:
    command = commands.add_parser("peers", help="run another engine on the same token ids")
    command.add_argument("peer", choices=peer_names())
    _work_options(command)
    command.add_argument("--model", required=True, help="a known name or a path, as for run")
    command.add_argument("--python", default=sys.executable, help="the peer's interpreter")
    command.add_argument("--path", default="", help="a folder of packages for it")
    command.add_argument(
        "--seconds", type=float, help="end the peer so many seconds after its start"
    )
    command.add_argument("--query-seconds", type=float, help="the most that one query may take")
    command.add_argument("--settings", type=json.loads, default={}, help="JSON; see its script")
    command.add_argument("--label", help="what reports call it; the peer's name by default")

    def run(options: argparse.Namespace) -> None:
        settings = PeerSettings(
            peer=options.peer,
            model=options.model,
            settings=options.settings,
            label=options.label or options.peer,
            scale=options.scale,
            seed=options.seed,
            truth=options.truth,
            repeats=options.repeats,
            price_per_hour=options.price,
        )
        interpreter = Interpreter(
            options.python, options.path, options.query_seconds, options.seconds
        )
        plans = by_interest(chosen(options.only))
        PeerSuite(settings, options.out, interpreter, _say).run(plans)
        _say(f"Results are in {options.out}. Next: covey bench report {options.out}")

    command.set_defaults(run=run)


def _sql(commands: Commands) -> None:
    command = commands.add_parser("sql", help="print queries as Covey's SQL")
    command.add_argument("queries", nargs="*", help="queries or families; all by default")

    def run(options: argparse.Namespace) -> None:
        for plan in chosen(options.queries):
            print(f"-- {plan.id}\n{to_sql(plan)};\n")

    command.set_defaults(run=run)


def _tokenizer(commands: Commands) -> None:
    command = commands.add_parser(
        "tokenizer", help="put the suite's tokenizer into a checkpoint of random weights"
    )
    command.add_argument("checkpoint", type=Path)

    def run(options: argparse.Namespace) -> None:
        if not (options.checkpoint / "config.json").is_file():
            raise InputError(f"{options.checkpoint} is no checkpoint: it has no config.json.")
        write_tokenizer(make_tokenizer(literals()), options.checkpoint)
        _say(f"{options.checkpoint} now encodes each word of the suite as one token.")

    command.set_defaults(run=run)


def _published(commands: Commands) -> None:
    command = commands.add_parser(
        "published", help="hold the generated tables against 30 published token totals"
    )
    command.add_argument("--out", type=Path, help="write the table to this file as well")

    def run(options: argparse.Namespace) -> None:
        text = counts.page(counts.deviations())
        print(text)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(text + "\n", encoding="utf-8")

    command.set_defaults(run=run)


def _report(commands: Commands) -> None:
    command = commands.add_parser("report", help="write report.md, results.csv and plots")
    command.add_argument("folder", type=Path)
    command.add_argument("--no-plots", action="store_true", help="do without matplotlib")

    def run(options: argparse.Namespace) -> None:
        _say(f"Written: {write_report(options.folder, plots=not options.no_plots)}")

    command.set_defaults(run=run)


def _compare(commands: Commands) -> None:
    command = commands.add_parser("compare", help="compare two engines' results")
    command.add_argument("one", metavar="FOLDER[:ENGINE]")
    command.add_argument("other", metavar="FOLDER[:ENGINE]")

    def run(options: argparse.Namespace) -> None:
        print(comparison(side(options.one), side(options.other)))

    command.set_defaults(run=run)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
