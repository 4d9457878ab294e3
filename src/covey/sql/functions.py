"""The AI functions of Covey's SQL: spellings of two vendors, arguments, results.

To add a function: one entry in `FUNCTIONS`, its reading in `sql/extract.py` and, if the model
answers it in a new way, a `QuestionKind`. Only the AI calls have a dialect here: the SQL around
them is DuckDB's, and no function, type or statement of another system is translated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from covey.errors import InputError
from covey.logical.calls import Reading
from covey.sql.text import nearest


@dataclass(frozen=True, slots=True)
class AIFunction:
    """One AI function.

    Attributes:
        name: the spelling used in messages and plans.
        spellings: every accepted spelling, upper case.
        parameters: names of the positional parameters, in order; the first is the prompt.
        options: names accepted in the options struct or as named arguments.
        reading: what the answer becomes.
    """

    name: str
    spellings: tuple[str, ...]
    parameters: tuple[str, ...]
    options: tuple[str, ...]
    reading: Reading


_COMMON = (
    *("selectivity", "anchor", "on_error", "max_error_ratio", "long_documents"),
    "return_error_details",
)
_ANSWER = ("examples", "calibration", *_COMMON)
_LABELS = ("output_mode", "probabilities", "top_k", "none_of_these", "threshold", "method")
# Accepted so that queries written for a warehouse run unchanged; they choose a remote
# service there and mean nothing here.
IGNORED_OPTIONS = ("connection_id", "endpoint", "optimization_mode")
# Options of other systems that change the answer and have no meaning here so far.
PLANNED_OPTIONS = ("embeddings",)

FUNCTIONS = (
    AIFunction(
        "AI.IF",
        ("AI.IF", "AI_IF", "AI_FILTER", "AI.FILTER", "AI_JOIN", "AI.JOIN"),
        ("prompt",),
        ("threshold", *_ANSWER),
        Reading.TRUTH,
    ),
    AIFunction("AI.SCORE", ("AI.SCORE", "AI_SCORE"), ("prompt",), _ANSWER, Reading.SCORE),
    AIFunction("AI.MARGIN", ("AI.MARGIN", "AI_MARGIN"), ("prompt",), _ANSWER, Reading.MARGIN),
    AIFunction(
        "AI.CLASSIFY",
        ("AI.CLASSIFY", "AI_CLASSIFY"),
        ("input", "categories"),
        ("task_description", *_LABELS, *_ANSWER),
        Reading.LABEL,
    ),
)

BY_SPELLING = {spelling: f for f in FUNCTIONS for spelling in f.spellings}

# Functions of other systems that have no meaning here: named, so that the message can
# say "not supported" rather than guess at a typing mistake.
_FOREIGN = re.compile(
    r"AI\.(GENERATE\w*|EMBED|COUNT_TOKENS|AGG|SIMILARITY|FORECAST|SEARCH|RANK|EXTRACT|COMPLETE"
    r"|SUMMARIZE|TRANSLATE|SENTIMENT|PARSE_DOCUMENT)"
    r"|AI_(GENERATE\w*|AGG|SUMMARIZE\w*|COMPLETE|EXTRACT|SENTIMENT|SIMILARITY|EMBED|COUNT_TOKENS"
    r"|QUERY|GEN|MASK|TRANSLATE|PARSE_DOCUMENT|FIX_GRAMMAR|ANALYZE_SENTIMENT|FORECAST"
    r"|TRANSCRIBE|REDACT)"
    r"|LLM_(FILTER|COMPLETE\w*|EMBEDDING|REDUCE\w*|RERANK|FIRST|LAST)|NLFILTER|NLJOIN"
)


def is_foreign(spelling: str) -> bool:
    """Whether another vendor has this AI function and Covey has not."""
    return _FOREIGN.fullmatch(spelling) is not None


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
    return nearest(spelling, written, 0.7)
