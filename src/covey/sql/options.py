"""Sort the arguments of an AI call into parameters and options, and read the options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    nearest_option,
    several_columns,
)
from covey.sql.text import TokenList

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
        near = nearest_option(name, raw.function)
        hint = f"Did you mean {near}?" if near else f"It has {', '.join(raw.function.options)}."
        raise self._tokens.error(f"{raw.spelling} has no option {name}", span, hint)

    def text(self, name: str) -> str | None:
        """The value of an option that is a text.

        Raises:
            QueryError: it is no text.
        """
        given = self.options.get(name)
        if given is None or isinstance(given.value, str):
            return None if given is None else given.value
        raise self.wrong(name, "a text", "Write it in single quotes.")

    def flag(self, name: str) -> bool:
        """The value of an option that is TRUE or FALSE; FALSE where it is not given.

        Raises:
            QueryError: it is neither.
        """
        given = self.options.get(name)
        if given is None or isinstance(given.value, bool):
            return given is not None and given.value
        raise self.wrong(name, "TRUE or FALSE", "Write TRUE.")

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        """The value of an option that is one of some texts, in lower case.

        Raises:
            QueryError: it is none of them.
        """
        given = self.options.get(name)
        if given is None:
            return None
        if isinstance(given.value, str) and given.value.lower() in choices:
            return given.value.lower()
        *others, last = (repr(choice) for choice in choices)
        what = f"{', '.join(others)} or {last}" if others else last
        raise self.wrong(name, what, "Write it in single quotes.")

    def refuse(self, name: str, reason: str, hint: str) -> QueryError:
        """An error at the place of an option."""
        return self._tokens.error(reason, self.options[name].span, hint)

    def anchor(self, arguments: tuple[TextSpan, ...]) -> int:
        """The anchor as a placeholder number, from a number or an alias of its argument.

        Raises:
            QueryError: it names none of the prompt's documents.
        """
        given = self.options.get("anchor")
        if given is None:
            return 0
        value = given.value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(arguments):
            return value
        for number, (start, end) in enumerate(arguments):
            alias = self._tokens.text[start:end].partition(".")[0].strip().strip('"')
            if isinstance(value, str) and alias.lower() == value.lower():
                return number
        raise self._tokens.error(
            f"The anchor {shown(value)} is none of the prompt's documents",
            given.span,
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
        chosen = self.options.get("long_documents")
        if chosen is None:
            return LongDocuments.ERROR
        if chosen.value not in [choice.value for choice in LongDocuments]:
            raise self.wrong(
                "long_documents",
                "'error', 'truncate' or 'split'",
                "'error' makes a row fail whose document is longer than the model's context; "
                "'truncate' asks about its beginning, 'split' about each part.",
            )
        return LongDocuments(chosen.value)

    def _share(self, name: str) -> float | None:
        given = self.options.get(name)
        if given is None:
            return None
        if isinstance(given.value, bool) or not _is_share(given.value):
            raise self.wrong(name, "a number from 0 to 1", "Write it as 0.25.")
        return float(given.value)

    def _on_error(self) -> OnError:
        chosen = self.options.get("on_error")
        if chosen is not None and chosen.value not in [choice.value for choice in OnError]:
            raise self.wrong(
                "on_error",
                "'null', 'fail' or 'value'",
                "'null' makes a failed row NULL and counts it; 'fail' ends the query; 'value' "
                "gives a struct of value and error.",
            )
        wanted = OnError.VALUE if self.flag("return_error_details") else None
        if chosen is None:
            return wanted or OnError.NULL
        if wanted not in (None, OnError(chosen.value)):
            reason = "on_error and return_error_details contradict each other"
            raise self.refuse("return_error_details", reason, "Leave one of them out.")
        return OnError(chosen.value)

    def wrong(self, name: str, what: str, hint: str) -> QueryError:
        """An error about an option's value."""
        value = shown(self.options[name].value)
        return self.refuse(name, f"The option {name} must be {what}, not {value}", hint)


def _is_share(value: Any) -> bool:
    try:
        return 0.0 <= float(value) <= 1.0
    except (TypeError, ValueError):
        return False
