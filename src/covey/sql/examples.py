"""Read the examples and the calibration of a call."""

from __future__ import annotations

from typing import Any

from covey.prompts.question import Calibration, Example, Label
from covey.sql.bind import shown
from covey.sql.options import Arguments

PRIOR, LABELLED = "prior", "labelled"
_INPUTS = ("input", "inputs", "text", "document")
_ANSWERS = ("label", "labels", "answer", "output")
_HINT = "Write [{'input': 'Where is my parcel?', 'label': 'shipping'}, …]."


def read_examples(
    given: Arguments, arity: int, labels: tuple[Label, ...], each: bool
) -> tuple[Example, ...]:
    """The examples of a call.

    Args:
        given: its arguments.
        arity: documents of its prompts; an example has as many texts.
        labels: an example's answer is one of these; empty for TRUE and FALSE.
        each: whether the labels are asked for one by one: an example then names all that
            apply, and shows TRUE for each of them and FALSE for the first other one.

    Raises:
        QueryError: an example that cannot be read, or whose answer is none.
    """
    values = given.value("examples")
    if values is None:
        return ()
    if not isinstance(values, list | tuple) or not values:
        raise given.wrong("examples", "a list of inputs and answers", _HINT)
    if not arity:
        raise given.refuse("examples", "A prompt without a document has no examples", _HINT)
    found: list[Example] = []
    for value in values:
        documents, answer = _parts(given, value)
        if len(documents) != arity:
            raise given.refuse(
                "examples",
                f"An example has {len(documents)} texts, and the prompt {arity} documents",
                "Give a list of texts as its input, one a document.",
            )
        if each:
            found += _each(given, documents, answer, labels)
        else:
            found.append(Example(documents, _answer(given, answer, labels)))
    return tuple(found)


def _parts(given: Arguments, value: Any) -> tuple[tuple[str, ...], Any]:
    """The texts and the answer of one example, a struct or a pair."""
    if isinstance(value, dict):
        named = {str(name).lower(): each for name, each in value.items()}
        extra = sorted(set(named) - {*_INPUTS, *_ANSWERS})
        if extra and not _unnamed(value):
            raise given.refuse("examples", f"An example has no field {extra[0]}", _HINT)
        values = list(value.values())
        text = next((named[n] for n in _INPUTS if n in named), values[0] if values else None)
        answer = next((named[n] for n in _ANSWERS if n in named), values[-1] if values else None)
    elif isinstance(value, list | tuple) and len(value) == 2:
        text, answer = value
    else:
        text = answer = None
    texts = tuple(text) if isinstance(text, list | tuple) else (text,)
    if not all(isinstance(each, str) for each in texts) or answer is None:
        raise given.refuse("examples", f"The example {shown(value)} cannot be read", _HINT)
    return texts, answer


def _unnamed(value: dict[Any, Any]) -> bool:
    """Whether a struct's fields have no names of their own: ('text', 'label')."""
    return len(value) == 2 and not any(str(name).isidentifier() for name in value)


def _answer(given: Arguments, answer: Any, labels: tuple[Label, ...]) -> str:
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not labels:
        text = str(answer).upper()
        if text in ("TRUE", "FALSE"):
            return text
        raise given.refuse(
            "examples", f"The answer of an example is TRUE or FALSE, not {shown(answer)}", _HINT
        )
    if answer in [label.text for label in labels]:
        return str(answer)
    raise given.refuse(
        "examples",
        f"The answer {shown(answer)} of an example is none of the labels",
        "Spell it as in the list of labels.",
    )


def _each(
    given: Arguments, documents: tuple[str, ...], answer: Any, labels: tuple[Label, ...]
) -> list[Example]:
    chosen = [_answer(given, a, labels) for a in (answer if isinstance(answer, list) else [answer])]
    others = [label.text for label in labels if label.text not in chosen][:1]
    return [
        *(Example(documents, "TRUE", text) for text in chosen),
        *(Example(documents, "FALSE", text) for text in others),
    ]


def read_calibration(given: Arguments, arity: int, judged: bool) -> tuple[Calibration | None, bool]:
    """What corrects the scores of a call.

    Args:
        given: its arguments.
        arity: documents of its prompts.
        judged: whether the answers are TRUE and FALSE, which can be learned from labels.

    Returns:
        the calibration so far, and whether that of `Connection.calibrate` is to be put in.

    Raises:
        QueryError: there is no such calibration, or it has no meaning here.
    """
    chosen = given.choice("calibration", (PRIOR, LABELLED))
    if chosen is None:
        return None, False
    if chosen == LABELLED:
        if not judged:
            raise given.refuse(
                "calibration",
                "A calibration from labelled rows is for AI.IF, AI.SCORE and AI.MARGIN",
                "Use calibration => 'prior' here.",
            )
        return None, True
    if not arity:
        raise given.refuse(
            "calibration",
            "A prompt without a document has no content-free document",
            "Leave the option out.",
        )
    return Calibration(prior=True), False
