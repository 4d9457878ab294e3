"""Typed values of a model's description, each of which is used, harmless, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any, NoReturn

from covey.errors import ModelError

# No width, count or vocabulary of a model is larger.
_MOST = 1 << 31
_REPR = Repr()
_REPR.maxstring = 80


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one file, or of one part of it.

    Every method raises ModelError where a value is missing, of another type or out of bounds.
    A value that is null counts as missing.

    Attributes:
        values: by name.
        path: the file.
        prefix: of every name that is asked for, in the file and in messages.
        where: a part of the sentence about a missing value, where the values lie.
    """

    values: Mapping[str, Any]
    path: Path
    prefix: str = ""
    where: str = ""

    def whole(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        """A positive whole number, at most `most`."""
        value = self._value(key, default)
        if type(value) is not int or not 1 <= value <= most:
            self.refuse(key, f"a positive number is needed, a whole one of at most {most:,}")
        return value

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A number from `low` to `high`."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not low <= value <= high:
            self.refuse(key, f"a number from {low:g} to {high:g} is needed")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """TRUE or FALSE."""
        value = self._value(key, default)
        if type(value) is not bool:
            self.refuse(key, "true or false is needed")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self.refuse(key, "a text is needed")
        return value

    def items(self, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        """A list of values of one type."""
        value = self._value(key, default)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            self.refuse(key, f"a list of {kind.__name__} is needed")
        return value

    def part(self, key: str) -> Fields | None:
        """The fields within a field, None where it is missing or holds none."""
        value = self.values.get(self.prefix + key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(key, "an object is needed")
        inner = {f"{self.prefix}{key}.{name}": found for name, found in value.items()}
        return Fields(inner, self.path, f"{self.prefix}{key}.") if inner else None

    def get(self, key: str) -> Any:
        """A value of any type, None where it is missing."""
        return self.values.get(self.prefix + key)

    def known(
        self,
        used: Container[str],
        neutral: Mapping[str, tuple[Any, ...]],
        harmless: Callable[[str], bool],
    ) -> None:
        """Refuse what asks for something that is not done.

        Args:
            used: names of fields that are read elsewhere.
            neutral: of other fields the values that change nothing, beside null.
            harmless: whether a field of any value changes no answer.
        """
        for name, value in self.values.items():
            key = name.removeprefix(self.prefix)
            if value is None or key in used or harmless(key):
                continue
            if not any(value == allowed for allowed in neutral.get(key, ())):
                self.unsupported(key)

    def unsupported(self, key: str) -> NoReturn:
        """Refuse a field that asks for something that is not done."""
        raise ModelError(
            f"{self.path} sets {self.prefix}{key} = {_REPR.repr(self.get(key))}, which Covey does"
            " not compute. Choose another model, or remove the field if no answer depends on it."
        )

    def refuse(self, key: str, needed: str) -> NoReturn:
        """Refuse a field's value; `needed` is a part of the sentence."""
        raise ModelError(
            f"{self.path} holds {self.prefix}{key} = {_REPR.repr(self.get(key))}; {needed}."
        )

    def _value(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(
                f"{self.path} has no {self.prefix}{key}{self.where}, without which a model cannot"
                " be run."
            )
        return value
