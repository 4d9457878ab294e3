"""Sort the arguments of an AI call into parameters and options, and read the options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlglot import TokenType

from covey.errors import QueryError, UnsupportedError
from covey.logical.calls import CallOptions, LongDocuments, OnError
from covey.logical.text_span import TextSpan
from covey.sql.bind import Binder, shown
from covey.sql.call_parser import Argument, RawCall
from covey.sql.functions import (
    IGNORED_OPTIONS,
    PLANNED_OPTIONS,
    Dialect,
    several_columns,
)
from covey.sql.text import TokenList, nearest

# Other names of parameters.
_ALSO = {"labels": "categories"}


@dataclass(frozen=True, slots=True)
class Given:
    """The constant value of one option, and where it stands."""

    value: Any
    span: TextSpan


class Arguments:
    """The arguments of one call, by name; the binder evaluates constants.

    Attributes:
        parameters: what was given for each parameter of the function.
        options: what was given for each option, lower-case names.

    Raises:
        QueryError: an argument that the function does not take, a name given twice or
            an option that is no constant.
        UnsupportedError: an option that other systems have and Covey has not.
    """

    def __init__(
        self, raw: RawCall, tokens: TokenList, binder: Binder, dialect: Dialect | None
    ) -> None:
        self._raw = raw
        self._tokens = tokens
        self._binder = binder
        self._dialect = dialect
        self.parameters: dict[str, Argument] = {}
        self.options: dict[str, Given] = {}
        places = iter(raw.function.parameters)
        for argument in raw.arguments:
            name = next(places, None) if argument.name is None else argument.name
            name = _ALSO.get(name or "", name)
            if name in raw.function.parameters:
                if name in self.parameters:
                    raise self._twice(f"The argument {name}", argument.span)
                self.parameters[name] = argument
            elif argument.name is None:
                self._trailing(argument)
            elif self._is_known(argument.name, tokens[argument.first - 2].span):
                self._option(argument.name, binder.constant(argument.span), argument.span)

    def _trailing(self, argument: Argument) -> None:
        """A positional argument behind the parameters: options, or return_error_details."""
        span, value = argument.span, self._binder.constant(argument.span)
        if isinstance(value, bool):
            self._option("return_error_details", value, span)
        elif isinstance(value, dict):
            for name, each in value.items():
                if self._is_known(name, span):
                    self._option(name.lower(), each, span)
        elif self._tokens[argument.first].kind is TokenType.L_BRACE:
            raise self._tokens.error(
                "The options must be constants",
                span,
                "They hold for all rows: {'selectivity': 0.2}.",
            )
        else:
            raise self._tokens.error(
                f"{self._raw.spelling} takes no such argument",
                span,
                "Options are a struct, {'selectivity': 0.2}, or named, selectivity => 0.2. "
                f"Several columns go into {several_columns(self._dialect)}.",
            )

    def _option(self, name: str, value: Any, span: TextSpan) -> None:
        if name in self.options:
            raise self._twice(f"The option {name}", span)
        if value is None:
            raise self._tokens.error(
                f"The option {name} needs a constant that is not NULL",
                span,
                "An option holds for all rows; leave it out for its default.",
            )
        self.options[name] = Given(value, span)

    def _twice(self, what: str, span: TextSpan) -> QueryError:
        return self._tokens.error(f"{what} is given twice", span, "Give it once.")

    def _is_known(self, name: str, span: TextSpan) -> bool:
        """Whether an option is one to read; False for one that is taken and means nothing."""
        raw, known = self._raw, name.lower()
        if known in IGNORED_OPTIONS:
            return False
        if known in raw.function.options:
            return True
        if known in PLANNED_OPTIONS:
            raise UnsupportedError(
                f"The option {known} of {raw.spelling} is not supported yet",
                sql=self._tokens.text,
                span=span,
                hint=f"Leave it out. {raw.spelling} has {', '.join(raw.function.options)}.",
            )
        near = nearest(known, raw.function.options)
        hint = f"Did you mean {near}?" if near else f"It has {', '.join(raw.function.options)}."
        raise self._tokens.error(f"{raw.spelling} has no option {name}", span, hint)

    def value(self, name: str) -> Any:
        """The value of an option; None where it is not given."""
        given = self.options.get(name)
        return None if given is None else given.value

    def text(self, name: str) -> str | None:
        """The value of an option that is a text.

        Raises:
            QueryError: it is no text.
        """
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text", "Write it in single quotes.")
        return value

    def flag(self, name: str) -> bool:
        """The value of an option that is TRUE or FALSE; FALSE where it is not given.

        Raises:
            QueryError: it is neither.
        """
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "TRUE or FALSE", "Write TRUE.")
        return bool(value)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        """The value of an option that is one of some texts, in lower case.

        Raises:
            QueryError: it is none of them.
        """
        value = self.value(name)
        lower = value.lower() if isinstance(value, str) else value
        return self._one_of(name, lower, choices, "Write it in single quotes.")

    def _one_of(self, name: str, value: Any, choices: Sequence[str], hint: str) -> str | None:
        """The value of an option, None or one of some texts."""
        if value is None or value in choices:
            return cast(str | None, value)
        *others, last = map(repr, choices)
        raise self.wrong(name, f"{', '.join(others)} or {last}", hint)

    def refuse(self, name: str, reason: str, hint: str) -> QueryError:
        """An error at the place of an option."""
        return self._tokens.error(reason, self.options[name].span, hint)

    def anchor(self, arguments: tuple[TextSpan, ...]) -> int:
        """The anchor as a placeholder number, from a number or an alias of its argument.

        Raises:
            QueryError: it names none of the prompt's documents.
        """
        value = self.value("anchor")
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(arguments):
            return value
        for number, (start, end) in enumerate(arguments):
            alias = self._tokens.text[start:end].partition(".")[0].strip().strip('"')
            if isinstance(value, str) and alias.lower() == value.lower():
                return number
        raise self.refuse(
            "anchor",
            f"The anchor {shown(value)} is none of the prompt's documents",
            "Give a placeholder's number, or the alias before an argument's column.",
        )

    def call_options(self) -> CallOptions:
        """The options that every function has.

        Raises:
            QueryError: a value that an option cannot have.
        """
        return CallOptions(
            self._share("selectivity"),
            self._share("threshold"),
            self._on_error(),
            self._share("max_error_ratio"),
            self._long_documents(),
        )

    def _long_documents(self) -> LongDocuments:
        chosen = self._one_of(
            "long_documents",
            self.value("long_documents"),
            [choice.value for choice in LongDocuments],
            "'error' makes a row fail whose document is longer than the model's context; "
            "'truncate' asks about its beginning, 'split' about each part.",
        )
        return LongDocuments.ERROR if chosen is None else LongDocuments(chosen)

    def _share(self, name: str) -> float | None:
        value = self.value(name)
        if value is None:
            return None
        try:
            share = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            share = math.nan
        if not 0.0 <= share <= 1.0:
            raise self.wrong(name, "a number from 0 to 1", "Write it as 0.25.")
        return share

    def _on_error(self) -> OnError:
        chosen = self._one_of(
            "on_error",
            self.value("on_error"),
            [choice.value for choice in OnError],
            "'null' makes a failed row NULL and counts it; 'fail' ends the query; 'value' "
            "gives a struct of value and error.",
        )
        details = self.flag("return_error_details")
        if chosen is None:
            return OnError.VALUE if details else OnError.NULL
        if details and chosen != OnError.VALUE.value:
            reason = "on_error and return_error_details contradict each other"
            raise self.refuse("return_error_details", reason, "Leave one of them out.")
        return OnError(chosen)

    def wrong(self, name: str, what: str, hint: str) -> QueryError:
        """An error about an option's value."""
        value = shown(self.options[name].value)
        return self.refuse(name, f"The option {name} must be {what}, not {value}", hint)
