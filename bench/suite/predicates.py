"""What the 50 queries ask: questions, label lists, and how often the answer is expected TRUE.

The wording is ours; its length in tokens is that of the benchmark's prompts as far as the
published totals give it away (`counts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from covey.prompts.layout import LAYOUTS
from covey.prompts.question import Label, Question, QuestionKind


@dataclass(frozen=True, slots=True)
class Predicate:
    """One question about documents of fixed columns.

    Attributes:
        name: short and unique.
        template: as written in SQL.
        documents: (table, column) of each placeholder.
        anchor: the placeholder whose document comes first in the prompt.
        selectivity: the share of TRUE that a planner is told; None for a classification.
        labels: the classes, empty for a judgement.
    """

    name: str
    template: str
    documents: tuple[tuple[str, str], ...]
    anchor: int = 0
    selectivity: float | None = None
    labels: tuple[Label, ...] = ()

    @property
    def question(self) -> Question:
        """What Covey asks for it."""
        kind = QuestionKind.CLASSIFY if self.labels else QuestionKind.JUDGE
        return Question(kind, self.template, len(self.documents), self.labels, self.anchor)


def _labels(text: str) -> tuple[Label, ...]:
    """One label a line, perhaps with `= description` behind it."""
    found = []
    for line in text.strip().splitlines():
        name, _, description = line.strip().partition(" = ")
        found.append(Label(name, description or None))
    return tuple(found)


REVIEW, ASPECT = ("reviews", "body"), ("aspects", "aspect")
REPORT, TERM = ("reports", "report"), ("terms", "term")
CLAIM, PAGE = ("claims", "claim"), ("evidence", "text")
CONTEXT = ("citation_contexts", "destination_context")
PASSAGE = ("citation_passages", "passage_text")
TRACE = ("agent_traces", "trace")


def _filter(
    name: str, column: tuple[str, str], share: float, asked: str, true: str | None
) -> Predicate:
    rule = "" if true is None else f"\n\nInstruction: answer TRUE if {true}, FALSE otherwise."
    return Predicate(name, f"{{0}}\n\n{asked}{rule}", (column,), selectivity=share)


def _join(
    name: str,
    columns: tuple[tuple[str, str], tuple[str, str]],
    share: float,
    asked: str,
    anchor: int = 0,
) -> Predicate:
    rule = "\n\nInstruction: answer TRUE if so, FALSE otherwise."
    return Predicate(name, asked + rule, columns, anchor, share)


def _classify(name: str, column: tuple[str, str], asked: str, labels: str) -> Predicate:
    return Predicate(name, f"{{0}}\n\n{asked}", (column,), labels=_labels(labels))


_FILTERS = (
    _filter(
        "F1",
        REVIEW,
        0.801,
        "Does the writer of this review name one or more things about the film that they liked?",
        "one good thing or more is named in the review",
    ),
    _filter("F4", REVIEW, 0.244, "Does it say how the film ends?", "the end is told in the review"),
    _filter(
        "F5",
        REVIEW,
        0.571,
        "Is an actor or an actress of this film called by name anywhere in the review?",
        "the name of one actor or actress is given in it",
    ),
    _filter(
        "SERIOUS",
        REPORT,
        0.638,
        "Did the patient of this report come to serious harm, or was the life of the patient"
        " in danger at any time?",
        "a serious or dangerous event is reported for the patient",
    ),
    _filter("NEURO", TERM, 0.448, "Is this a reaction of the brain or the nerves?", None),
    _filter("CARDIO", TERM, 0.350, "Is this a reaction of the heart or the vessels?", None),
    _filter(
        "F11",
        CLAIM,
        0.592,
        "Is this claim about one person, living or dead, rather than about a place or a thing?",
        "the subject of it is one person and no other",
    ),
    _filter(
        "F12",
        CLAIM,
        0.138,
        "Does this claim contain a date or a year, written in any form, such as a day of a month?",
        "there is a date or year",
    ),
    _filter(
        "F13",
        PAGE,
        0.554,
        "Is this page mainly about one person, living or dead, not about a place or a thing?",
        "the page is about a person",
    ),
    _filter(
        "LEP1",
        CONTEXT,
        0.028,
        "Does the court say here that the reasoning of the other case does not apply?",
        "it is held not to apply",
    ),
    _filter(
        "LEP2",
        CONTEXT,
        0.458,
        "Is this about how a case is brought, or about which court may hear it?",
        "it is about procedure or about which court",
    ),
    _filter(
        "LEPS1",
        PASSAGE,
        0.811,
        "Does this passage state a rule of law that holds beyond the one case it was said in?",
        "a general rule is stated",
    ),
    _filter(
        "RECOVERED",
        TRACE,
        0.322,
        "Did the agent in this trace first try something that did not work, and then find"
        " another way that did work, or that came closer to the goal it had been given?",
        "an approach failed and a later and different approach in this same trace then got much"
        " further",
    ),
    _filter(
        "FIX",
        TRACE,
        0.303,
        "Does this trace, as far as it goes, already hold a change to the code that could well"
        " settle the issue that the user described in the first message, whether or not any test"
        " was run after that change was made by the agent?",
        "such a change has been written to a file and not taken back later, and it touches the"
        " part of the code that the issue is about",
    ),
)

_JOINS = (
    _join("DISCUSS", (REVIEW, ASPECT), 0.295, "Does {0}, a review, say anything about {1}?"),
    _join("ASPECT_SENT", (REVIEW, ASPECT), 0.161, "Does the review {0} speak well about {1}?"),
    _join(
        "REACTION",
        (REPORT, TERM),
        0.034,
        "Does {0}, which is a report about one patient, say that this patient had {1}?",
    ),
    _join("SUPPORT", (CLAIM, PAGE), 0.0022, "Does {1} show that the claim {0} is true?", anchor=1),
    _join("REFUTE", (CLAIM, PAGE), 0.0033, "Does {1} show that the claim {0} is false?", anchor=1),
    _join("LEPJOIN", (CONTEXT, PASSAGE), 0.0023, "Does {0} cite the passage {1} as its ground?"),
)

_CLASSIFICATIONS = (
    _classify(
        "SENTIMENT",
        REVIEW,
        "How does the writer feel about the film?",
        "positive\nnegative\nmixed\nneutral",
    ),
    _classify(
        "GENRE",
        REVIEW,
        "Which kind of film is it?",
        """action\nadventure\ncartoon\nbiography\ncomedy\ncrime\ndocumentary\ndrama\nfamily
        fantasy\nhistory\nhorror\nmusic\nmusical\nmystery\nromance\nscience fiction\nsport
        thriller\nwar\nwestern""",
    ),
    _classify(
        "COMPLAINT",
        REVIEW,
        "What does the writer like least?",
        """poor acting\npoor writing\npoor sound and picture\ntoo long or too slow
        too much violence\nnot funny\nnot like the book\nsomething else""",
    ),
    Predicate(
        "ASPECT_CLASS",
        "What does the review {0} think of {1}?",
        (REVIEW, ASPECT),
        labels=_labels("praises it\nfinds fault with it\npraises and finds fault\ngives no view"),
    ),
    _classify(
        "ORGAN",
        TERM,
        "To which group does this reaction belong?",
        """cardiac\nvascular\nblood and bone marrow\nbirth defects\near and balance\nhormones\neye
        stomach and bowel\ngeneral conditions and where the drug was given\nliver and bile
        immune system\ninfection\ninjury and mistakes in giving the drug\ntest results
        food and salts\nmuscle and bone\ncancer and other growths\nnerves and brain
        pregnancy and birth\nthe device itself\nmental health\nkidney and bladder
        breast and sexual organs\nlung, chest and the space between the lungs\nskin
        life and social conditions""",
    ),
    _classify(
        "TOPIC",
        CLAIM,
        "What is the claim about?",
        """film and television\nmusic\nsport\npolitics\nhistory\nscience\nplaces\nbooks\nbusiness
        religion\nsomething else""",
    ),
    _classify(
        "AREA",
        CONTEXT,
        "To which area of law does this belong?",
        """constitutional\ncriminal\ncontract\ninjury\nproperty\nfamily\nlabor\ntax\npatent
        bankruptcy\nimmigration\nadministrative\nevidence\ncivil procedure\ninsurance""",
    ),
    _classify(
        "PROGRESS",
        TRACE,
        "How far has the agent come?",
        """only looked around = it read files and ran commands but changed nothing
        showed the problem = it made the issue happen again but changed nothing
        changed the code and did not test it = a change was made and nothing was run after it
        changed the code and the tests still fail = a test run after the change failed
        changed the code and the tests pass = the last test run after the change passed""",
    ),
    _classify(
        "TESTS",
        TRACE,
        "What did the last test run show?",
        """all passed = every test that was run passed
        some failed = one test or more failed and others passed
        could not run = the run ended with an error before any test was done
        not run = no test was run in this trace""",
    ),
    _classify(
        "DOMAIN",
        TRACE,
        "To which field does the code belong?",
        """Software Development :: Testing\nSoftware Development :: Build Tools
        Software Development :: Libraries\nSoftware Development :: Code Generators
        Software Development :: Version Control\nSoftware Development :: Debuggers
        Software Development :: Documentation\nSoftware Development :: User Interfaces
        Internet :: Web Servers\nInternet :: Web Clients\nInternet :: Mail\nDatabase
        Database :: Drivers\nScientific :: Mathematics\nScientific :: Statistics
        Scientific :: Physics\nScientific :: Chemistry\nScientific :: Machine Learning
        Scientific :: Medicine\nSystem :: Networking\nSystem :: Monitoring\nSystem :: Archiving
        Security\nMultimedia :: Graphics\nMultimedia :: Sound\nText Processing\nOffice""",
    ),
    _classify(
        "DEFECT",
        TRACE,
        "What kind of mistake is at the root of the issue?",
        """assignment = a value is set wrong or not set at all
        checking = a condition is missing or tests the wrong thing
        algorithm = the steps are wrong and must be thought through again
        interface = two parts of the code disagree about what is passed between them
        timing = things run in the wrong order or at the same time
        function = a whole ability is missing or works in another way than was meant
        build = the mistake lies in a build file, a version or a release
        documentation = the code is right and what is written about it is wrong""",
    ),
)

PREDICATES = {p.name: p for p in (*_FILTERS, *_JOINS, *_CLASSIFICATIONS)}
BY_TEMPLATE = {p.template: p for p in PREDICATES.values()}


def literals() -> Iterator[str]:
    """Every literal text that the layout puts around a predicate's documents."""
    yield from ("[SYSTEM", "[USER", "[ASSISTANT", "[TOOL", "]\n")  # of agent traces
    for layout in LAYOUTS.values():
        for predicate in PREDICATES.values():
            question = predicate.question
            yield from (part.text for part in layout.parts(question) if part.document is None)
            yield from layout.answers(question)
