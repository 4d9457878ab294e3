"""The AI functions of Covey's SQL: spellings, arguments, results.

To add a function: one entry in `FUNCTIONS`, its reading in `sql/extract.py` and, if the
model answers it in a new way, a `QuestionKind`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from covey.logical.calls import Reading


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


def nearest_option(name: str, function: AIFunction) -> str | None:
    close = difflib.get_close_matches(name.lower(), function.options, n=1)
    return close[0] if close else None
