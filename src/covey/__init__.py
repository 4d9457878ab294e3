"""Covey: a query-aware inference engine for AI-SQL."""

from covey.api.connection import Connection, connect
from covey.api.query import Query
from covey.errors import CoveyError, InputError, ModelError, QueryError, RunError, UnsupportedError

__all__ = [
    "Connection",
    "CoveyError",
    "InputError",
    "ModelError",
    "Query",
    "QueryError",
    "RunError",
    "UnsupportedError",
    "connect",
]
