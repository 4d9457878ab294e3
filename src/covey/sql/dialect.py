"""Two vendors' spellings of AI functions, and how messages spell.

Only the AI calls have a dialect here. The SQL around them is DuckDB's whatever the
dialect: no function, type or statement of another system is translated.
"""

from __future__ import annotations

import difflib
from enum import Enum

from covey.errors import InputError
from covey.sql.functions import BY_SPELLING, FUNCTIONS, AIFunction


class Dialect(Enum):
    """Whose spelling: AI_FILTER(PROMPT('… {0}', a)) or AI.IF(('… ', a))."""

    SNOWFLAKE = "snowflake"
    BIGQUERY = "bigquery"


_SNOWFLAKE_SPELLING = {"AI.IF": "AI_FILTER"}


def read_dialect(name: str | None) -> Dialect | None:
    """The dialect of a name; None accepts the spellings of both.

    Raises:
        InputError: no dialect has that name.
    """
    if name is None:
        return None
    for dialect in Dialect:
        if isinstance(name, str) and name.lower() == dialect.value:
            return dialect
    names = " or ".join(repr(dialect.value) for dialect in Dialect)
    raise InputError(f"The dialect is {names}, or None for both, not {name!r}.")


def function_name(function: AIFunction, dialect: Dialect | None) -> str:
    """How a dialect spells a function."""
    if dialect is not Dialect.SNOWFLAKE:
        return function.name
    return _SNOWFLAKE_SPELLING.get(function.name, function.name.replace(".", "_"))


def style_of(spelling: str) -> Dialect | None:
    """The dialect that an unknown function's name looks like."""
    if spelling.startswith("AI."):
        return Dialect.BIGQUERY
    return Dialect.SNOWFLAKE if spelling.startswith("AI_") else None


def example(function: AIFunction, dialect: Dialect | None, spelling: str | None = None) -> str:
    """A call as a model for the user's own, in the dialect and with their spelling."""
    name = spelling or function_name(function, dialect)
    if "categories" in function.parameters:
        return f"{name}(t.body, ['billing', 'shipping'])"
    if dialect is Dialect.BIGQUERY:
        return f"{name}(('Is it urgent? ', t.body))"
    return f"{name}(PROMPT('Is it urgent? {{0}}', t.body))"


def several_columns(dialect: Dialect | None) -> str:
    """How several columns go into one prompt."""
    if dialect is Dialect.BIGQUERY:
        return "one tuple: ('… ', a, ' … ', b)"
    return "one PROMPT('… {0} {1}', a, b)"


def supported(dialect: Dialect | None) -> str:
    """The functions that there are, as words of a sentence."""
    names = [function_name(function, dialect) for function in FUNCTIONS]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def nearest_function(spelling: str, dialect: Dialect | None) -> str | None:
    """The known spelling nearest to an unknown one, in a dialect's way of writing.

    None where nothing is near enough to have been meant.
    """
    style = dialect or style_of(spelling)
    written = [s for s in BY_SPELLING if s.startswith("AI.") is (style is Dialect.BIGQUERY)]
    return next(iter(difflib.get_close_matches(spelling, written, n=1, cutoff=0.7)), None)
