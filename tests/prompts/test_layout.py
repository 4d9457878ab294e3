"""The wording of `raw-v1`, whole prompts written out."""

from __future__ import annotations

import pytest

from covey.prompts.layout import RAW_V1, Role
from covey.prompts.question import Label, Question, QuestionKind


def judge(template: str, arity: int = 1, anchor: int = 0) -> Question:
    return Question(QuestionKind.JUDGE, template, arity, anchor=anchor)


def rendered(question: Question, *documents: str) -> str:
    parts = RAW_V1.parts(question)
    return "".join(p.text if p.document is None else documents[p.document] for p in parts)


def test_filter_puts_the_document_before_the_question() -> None:
    assert rendered(judge("Is it about a refund? {0}"), "Money back!") == (
        "DOCUMENT:\nMoney back!\n\n"
        "Evaluate TRUE or FALSE for the following question: Is it about a refund?\nANSWER:"
    )


@pytest.mark.parametrize(
    ("template", "asked"),
    [
        ("{0}\n\nIs it rude?", "Is it rude?"),
        ("{0} Is it rude?", "Is it rude?"),
        ("Is it rude? {0}", "Is it rude?"),
        ("Is it rude?{0}", "Is it rude?"),
        ("Is it rude:\n{0}", "Is it rude"),
        ("Is it rude?\n\n{0}\n\nInstruction: be strict.", "Is it rude?\n\nInstruction: be strict."),
        ("Read this. {0} Is it rude?", "Read this. Is it rude?"),
        ("Is {0} rude?", "Is the document above rude?"),
        ("{0} is rude", "The document above is rude"),
        ("{0}'s tone is rude", "The document above's tone is rude"),
        ("Is there an insult in {0}", "Is there an insult in the document above"),
        ("Is {0} ruder than {0}?", "Is the document above ruder than the document above?"),
        ("Does {0} hold {{json}}?", "Does the document above hold {json}?"),
        ("Keep {{0}} and {name}: {0}", "Keep {0} and {name}"),
    ],
)
def test_placeholder_of_a_filter_is_taken_out_or_named(template: str, asked: str) -> None:
    assert rendered(judge(template), "X") == (
        f"DOCUMENT:\nX\n\nEvaluate TRUE or FALSE for the following question: {asked}\nANSWER:"
    )


def test_bare_column_is_its_own_question() -> None:
    assert rendered(judge("{0}"), "The sky is green.") == (
        "DOCUMENT:\nThe sky is green.\n\n"
        "Evaluate TRUE or FALSE for the question or statement in the document above.\nANSWER:"
    )


def test_prompt_without_documents_is_the_question_alone() -> None:
    assert rendered(judge("Is water wet?", arity=0)) == (
        "Evaluate TRUE or FALSE for the following question: Is water wet?\nANSWER:"
    )


def test_join_asks_before_the_partner_and_keeps_the_placeholders() -> None:
    assert rendered(judge("Does {0} mention {1}?", 2), "a review", "the plot") == (
        "DOCUMENT:\na review\n\n(The document above is DOCUMENT {0}.)\n\n"
        "Evaluate TRUE or FALSE for the following question: Does {0} mention {1}?\n\n"
        "DOCUMENT {1}:\nthe plot\nANSWER:"
    )


def test_anchor_comes_first_whichever_argument_it_is() -> None:
    found = rendered(judge("Does {0} mention {1}?", 2, anchor=1), "a review", "the plot")
    assert found.startswith("DOCUMENT:\nthe plot\n\n(The document above is DOCUMENT {1}.)")
    assert found.endswith("\n\nDOCUMENT {0}:\na review\nANSWER:")


def test_further_documents_are_headed_in_argument_order() -> None:
    found = rendered(judge("{0} {1} {2}", 3, anchor=1), "A", "B", "C")
    assert found.endswith("\n\nDOCUMENT {0}:\nA\n\nDOCUMENT {2}:\nC\nANSWER:")


LABELS = (Label("good"), Label("bad", "a complaint"))


def test_classification_lists_its_categories_behind_the_question() -> None:
    question = Question(QuestionKind.CLASSIFY, "What is the tone? {0}", 1, LABELS)
    assert rendered(question, "Fine.") == (
        "DOCUMENT:\nFine.\n\n"
        "Answer with exactly one of the categories below for the following question: "
        "What is the tone?\n\nCategories:\n- good\n- bad: a complaint\nANSWER:"
    )
    assert RAW_V1.answers(question) == (" good", " bad")


@pytest.mark.parametrize("template", ["", "{0}"])
def test_classification_without_a_question(template: str) -> None:
    question = Question(QuestionKind.CLASSIFY, template, 1, LABELS)
    assert rendered(question, "Fine.").startswith(
        "DOCUMENT:\nFine.\n\nAnswer with exactly one of the categories below.\n\nCategories:\n"
    )


def test_pair_classification_asks_behind_the_partner() -> None:
    question = Question(QuestionKind.CLASSIFY, "How does {1} feel about {0}?", 2, LABELS)
    assert rendered(question, "A", "B") == (
        "DOCUMENT:\nA\n\n(The document above is DOCUMENT {0}.)\n\nDOCUMENT {1}:\nB\n\n"
        "Answer with exactly one of the categories below for the following question: "
        "How does {1} feel about {0}?\n\nCategories:\n- good\n- bad: a complaint\nANSWER:"
    )


def test_parts_name_what_is_shared() -> None:
    roles = [part.role for part in RAW_V1.parts(judge("{0} {1}?", 2))]
    assert roles == [
        Role.PREAMBLE,
        Role.DOCUMENT,
        Role.INSTRUCTION,
        Role.HEADING,
        Role.DOCUMENT,
        Role.TAIL,
    ]
