"""Covey: a query-aware inference engine for AI-SQL."""

import logging
from typing import TYPE_CHECKING, Any

from covey.errors import CoveyError, InputError, ModelError, QueryError, RunError, UnsupportedError

if TYPE_CHECKING:
    __version__: str
    from covey.api.connection import CacheOptions, Connection, connect
    from covey.api.query import Query

__all__ = [
    "CacheOptions",
    "Connection",
    "CoveyError",
    "InputError",
    "ModelError",
    "Query",
    "QueryError",
    "RunError",
    "UnsupportedError",
    "__version__",
    "connect",
]


# Whoever uses the library says where its messages go; the command line shows them.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # Python imports `covey` before `covey.cli`, and `covey --help` has no use for DuckDB.
    if name in ("CacheOptions", "Connection", "connect", "Query"):
        from covey.api import connection, query

        return getattr(query if name == "Query" else connection, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("covey")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
