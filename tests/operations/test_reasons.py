import re
from pathlib import Path

from pushlink.errors import Code
from pushlink.operations.reasons import REASONS, reason_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
ROW = re.compile(r"^\| `(?P<code>[a-z_]+)` \| (?P<sentence>.+?) \| (?P<next_step>.+?) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    return [(m["code"], m["sentence"], m["next_step"]) for m in ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def test_every_code_has_a_reason_in_the_order_of_the_enumeration() -> None:
    """The table is complete, and its order is the enumeration's."""
    assert list(REASONS) == list(Code)


def test_the_page_says_what_the_code_says() -> None:
    """Each code stands on the page once, with the sentence and the next step that `explain` shows."""
    assert rows() == [(code.value, reason.sentence, reason.next_step) for code, reason in REASONS.items()]


def test_every_reason_is_made_of_sentences() -> None:
    """A reason can be read aloud: it opens with a capital letter and ends with a full stop."""
    for reason in REASONS.values():
        for text in (reason.sentence, reason.next_step):
            assert text[0].isupper()
            assert text.endswith(".")


def test_a_code_of_a_later_release_is_shown_as_it_is() -> None:
    """A worker of the next release may write a word that this one does not know; a reader does not fail over it."""
    assert "'of_tomorrow'" in reason_of("of_tomorrow").sentence
