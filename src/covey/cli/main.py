"""The entry point of the `covey` script, ready for whatever ends a process."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys

# Ctrl-C ends the process without a word, as other signals do, where nothing has to end in good
# order (`guard.in_good_order`): Python's own handler makes an error of it in whatever is being
# imported, and some libraries abort then. Where it is ignored it stays so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from covey.cli.guard import ended
from covey.cli.streams import prepare_streams
from covey.execution.stop import last_stop


def main() -> None:
    """Run the command that the arguments name, and exit."""
    code = ended(_run)
    if last_stop() is not None:
        # Where the signal met an `exec`, as imports have many, Python would end with 130
        # whatever signal it was.
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def _run() -> int:
    prepare_streams()
    logger = logging.getLogger("covey")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.INFO)
    from covey.cli.app import app

    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
