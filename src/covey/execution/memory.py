"""What a query does where its device has too little memory: it goes on with less."""

from __future__ import annotations

from covey.engine.base import Engine, EngineSession, OutOfMemory
from covey.errors import RunError
from covey.prompts.documents import DocumentStore


def open_session(
    engine: Engine, documents: DocumentStore, notes: list[str], how_to_go_on: str
) -> EngineSession:
    """A session of an engine, which uses less memory where there is too little for one.

    Raises:
        RunError: as `shrink`.
    """
    while True:
        try:
            return engine.session(documents)
        except OutOfMemory as error:
            reason = str(error)
        # Not within the block above: the error holds on to what found no room.
        shrink(engine, reason, notes, how_to_go_on)


def shrink(engine: Engine, reason: str, notes: list[str], how_to_go_on: str) -> None:
    """Let an engine without an open session use less memory, and note it.

    Raises:
        RunError: it cannot do with less.
    """
    done = engine.shrink()
    if done is None:
        raise RunError(f"{reason} It cannot use less. {how_to_go_on}")
    notes.append(f"The device was out of memory: the query went on with {done}.")
