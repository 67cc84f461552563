"""`pack test`: recorded replies in, requests and verdicts out, with a place for every mistake."""

from __future__ import annotations

import re
import shutil
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from pushlink.errors import CallerError, PackError
from pushlink.operations import pack_tests
from pushlink.packs import cases as case_models
from pushlink.packs.cases import CaseHistory, read_cases_text, write_expected
from pushlink.packs.loader import load_pack
from pushlink.protocol.outcome import History

ROOT = Path(__file__).parents[2]
PACK = ROOT / "examples" / "packs" / "crm.yaml"
PAGE = ROOT / "docs" / "pack-tests.md"

PERSON = "    object: Person\n    values: {full_name: Ada, status: lead}\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a pack of its own."""
    shutil.copy(PACK, tmp_path / "crm.yaml")
    return tmp_path


def ran(home: Path, text: str, **options: Any) -> pack_tests.RanCases:
    path = home / "cases.yaml"
    path.write_text(text, encoding="utf-8")
    return pack_tests.run(home / "crm.yaml", path, **options)


@pytest.mark.parametrize("cases", sorted((PACK.parent / "cases").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_packs_pass_their_cases(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pack with cases beside it, and with no socket to open."""
    pack = cases.parents[1] / cases.name
    assert pack_tests.cases_of(pack) == cases

    def no_socket(*_: object, **__: object) -> None:
        raise AssertionError("a pack test opens no socket")

    monkeypatch.setattr(socket, "socket", no_socket)
    done = pack_tests.run(pack)
    assert done.is_passed, [line for case in done.cases for diff in case.differences for line in diff.lines]


def test_a_failed_case_shows_each_difference(home: Path) -> None:
    """One line for a short value, a diff for a long one, and only what was expected is compared."""
    done = ran(
        home,
        "cases:\n  - name: wrong\n" + PERSON + "    reply: {status: 201, body: {id: 7}}\n"
        "    expect:\n"
        "      request: {method: PUT, headers: {X-Absent: x}, body: {name: Eve, origin: crm}}\n"
        "      verdict: {effect: unknown, remote_id: '8'}\n",
    )
    [case] = done.cases
    assert (done.passed, done.failed, case.passed, case.line) == (0, 1, False, 2)
    said = {difference.path: difference.lines for difference in case.differences}
    assert set(said) == {
        "request.method",
        "request.headers.X-Absent",
        "request.body",
        "verdict.effect",
        "verdict.remote_id",
    }
    assert said["verdict.remote_id"] == ('verdict.remote_id: expected "8", found "7"',)
    assert said["request.headers.X-Absent"] == ('request.headers.X-Absent: expected "x", found null',)
    body = said["request.body"]
    assert body[0] == "request.body: - expected, + found"
    assert '  -  "name": "Eve",' in body
    assert '  +  "name": "Ada",' in body


@pytest.mark.parametrize(
    ("reply", "effect", "code"),
    [
        ("{status: 201, body: {id: 7}}", "applied", None),
        ("{status: 201, body_text: 'id=7'}", "applied_unidentified", "applied_unidentified"),
        ("{status: 201, body_base64: 'eyJpZCI6N30='}", "applied", None),
        ("{status: 201, body: {id: 7}, truncated: true}", "applied_unidentified", "applied_unidentified"),
        ("{status: 500, headers: {Set-Cookie: [a, b]}}", "unknown", "effect_unknown"),
        ("{error: resolve}", "not_sent", "not_sent"),
        ("{error: write, sent: false}", "unknown", "effect_unknown"),
        ("{error: read}", "unknown", "effect_unknown"),
    ],
)
def test_a_reply_is_read_as_a_transport_would_have_stored_it(
    home: Path, reply: str, effect: str, code: str | None
) -> None:
    """Bodies in three spellings, a broken answer, and errors before and after the request left."""
    shown = "null" if code is None else code
    expect = f"{{verdict: {{effect: {effect}, code: {shown}}}}}"
    text = f"cases:\n  - name: one\n{PERSON}    reply: {reply}\n    expect: {expect}\n"
    done = ran(home, text)
    assert done.is_passed, done.cases[0].differences


def test_a_date_in_retry_after_is_measured_from_when_the_reply_came(home: Path) -> None:
    """`received_at` is the moment; nothing asks a clock."""
    reply = (
        '{status: 429, headers: {Retry-After: "Sat, 31 Jan 2026 12:01:00 GMT"}, received_at: "2026-01-31T12:00:00Z"}'
    )
    done = ran(
        home, f"cases:\n  - name: one\n{PERSON}    reply: {reply}\n    expect: {{verdict: {{retry_after: 1m}}}}\n"
    )
    assert done.is_passed, done.cases[0].differences


def test_what_cannot_be_sent_and_what_is_not_for_the_action_is_expected_by_name(home: Path) -> None:
    """A refusal by its code, a record that an action leaves alone as skipped; expecting more of them fails."""
    done = ran(
        home,
        "cases:\n"
        "  - {name: a, object: Person, values: {status: draft}, expect: {skipped: true}}\n"
        "  - {name: b, object: Person, values: {status: draft}, expect: {request: {method: POST}}}\n"
        "  - {name: c, object: Person, values: {status: lead, birthday: soon}, expect: {refused: value_unsendable}}\n"
        "  - {name: d, object: Person, values: {status: lead}, expect: {verdict: {effect: applied}}}\n"
        "  - {name: e, object: Person, values: {status: lead}}\n",
    )
    assert [case.passed for case in done.cases] == [True, False, True, False, False]
    found = [case.differences[-1].found for case in done.cases if not case.passed]
    assert found == [
        "no request: the conditions of the action do not hold",
        "no verdict: the case has no reply",
        "nothing; --update writes what was observed",
    ]


def test_an_update_writes_a_new_file_that_passes(home: Path) -> None:
    """What was observed is what is expected there; comments stay; the given file is left alone unless it is forced."""
    text = f"# why\ncases:\n  - name: one   # first\n{PERSON}    reply: {{status: 201, body: {{id: 7}}}}\n"
    done = ran(home, text, update=True)
    written = home / "cases.observed.yaml"
    assert done.written == str(written)
    assert (home / "cases.yaml").read_text() == text
    assert "# why" in written.read_text()
    assert "# first" in written.read_text()
    again = pack_tests.run(home / "crm.yaml", written)
    assert again.is_passed
    assert again.cases[0].observed == done.cases[0].observed
    with pytest.raises(CallerError):
        ran(home, text, update=True)
    ran(home, text, update=True, overwrite=True)
    assert (home / "cases.yaml").read_text() == written.read_text()


def test_texts_that_look_like_numbers_stay_texts_in_an_update() -> None:
    """Ids with leading zeros, fractions and words of YAML are quoted, so that they are read as they were."""
    pack = load_pack(PACK)
    text = f"cases:\n  - name: one\n{PERSON}    expect: {{verdict: {{remote_id: x}}}}\n"
    for odd in ("007", "1.50", "true", "~", "2026-01-31", "yes", "0x1F", "a: b", " a", "é\U0001f600"):
        expected = case_models.Expected(verdict=case_models.ExpectedVerdict(remote_id=odd))
        [placed] = read_cases_text(write_expected(text, [expected]), pack).cases
        assert placed.case.expect.verdict is not None
        assert placed.case.expect.verdict.remote_id == odd


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: []\n", "cases.yaml:1:8: cases: This is empty. Write at least one entry."),
        (
            "cases:\n  - {name: a, object: Person, expct: {}}\n",
            "cases.yaml:2:31: cases[0].expct: `expct` is no key here. Did you mean `expect`?",
        ),
        (
            "cases:\n  - {name: a, object: Nothing}\n",
            "cases.yaml:2:23: cases[0].object: No action of the pack pushes it. Known are: Organisation, Person.",
        ),
        (
            "cases:\n  - {name: a, object: Person, action: other}\n",
            "cases.yaml:2:39: cases[0].action: The pack has no action of this name for the object.",
        ),
        (
            "cases:\n  - {name: a, object: Person}\n  - {name: a, object: Person}\n",
            "cases.yaml:3:12: cases[1].name: The case of line 2 has this name already. Give each its own.",
        ),
        (
            "cases:\n  - {name: a, object: Person, operation: update}\n",
            "cases.yaml:2:5: cases[0]: Write `remote_id` for an update or a call, and for nothing else.",
        ),
        (
            "cases:\n  - {name: a, object: Person, association: team}\n",
            "cases.yaml:2:5: cases[0]: Write `association` for a call, and for nothing else.",
        ),
        (
            "cases:\n  - {name: a, object: Person, operation: call, remote_id: '1', association: team}\n",
            "cases.yaml:2:5: cases[0]: Write the other record's remote id, below `associated`.",
        ),
        (
            "cases:\n  - {name: a, object: Person, associated: {team: '7'}}\n",
            "cases.yaml:2:43: cases[0].associated: The action has no association team. It has: none.",
        ),
        (
            "cases:\n  - {name: a, object: Person, reply: {body: x}}\n",
            "cases.yaml:2:38: cases[0].reply: Write a `status`, or an `error` if there was no answer.",
        ),
        (
            "cases:\n  - {name: a, object: Person, reply: {status: 200, body: x, body_text: y}}\n",
            "cases.yaml:2:38: cases[0].reply: Write one of `body`, `body_text` and `body_base64`.",
        ),
        (
            'cases:\n  - {name: a, object: Person, values: {born: {date: "31.1.2026"}}}\n',
            'cases.yaml:2:46: cases[0].values.born: Write it as "2026-01-31".',
        ),
        ("cases: *a\n", "cases.yaml:1:8: cases: Aliases are refused: write the value out in full."),
    ],
)
def test_mistakes_have_a_place_and_a_remedy(home: Path, text: str, said: str) -> None:
    """The same words as for packs."""
    with pytest.raises(PackError) as caught:
        ran(home, text)
    assert said in [str(finding).replace(f"{home}/", "") for finding in caught.value.findings]


FAMILY = ROOT / "examples" / "packs" / "family.yaml"
CALL = "    object: Member\n    operation: call\n    remote_id: '31'\n"


def test_remote_ids_of_other_records_come_from_the_case(tmp_path: Path) -> None:
    """A route that names an association is refused without its id; a call that is not declared is a mistake."""
    pack = tmp_path / "family.yaml"
    pack.write_text(FAMILY.read_text().replace("POST, path: /members", 'POST, path: "/teams/{team}/members"'))
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "cases:\n"
        "  - {name: a, object: Member, associated: {team: t 7}, expect: {request: {path: /teams/t%207/members}}}\n"
        "  - {name: b, object: Member, expect: {refused: freeze_failed}}\n"
        "  - {name: c, object: Member, associated: {team: ..}, expect: {refused: route_unsafe}}\n"
    )
    ran = pack_tests.run(pack, cases)
    assert ran.is_passed, [case.differences for case in ran.cases]
    cases.write_text(f"cases:\n  - name: a\n{CALL}    association: team\n    associated: {{team: '7'}}\n")
    with pytest.raises(PackError, match="This association has no `call`"):
        pack_tests.run(pack, cases)


def test_a_call_is_read_by_its_own_statuses(tmp_path: Path) -> None:
    """The update of the action takes a 200, the call of its association a 201; each only its own."""
    cases = tmp_path / "cases.yaml"
    named = "    association: mentor\n    associated: {mentor: '32'}\n"
    cases.write_text(
        f"cases:\n  - name: a\n{CALL}{named}    reply: {{status: 201}}\n    expect: {{verdict: {{effect: applied}}}}\n"
        f"  - name: b\n{CALL}{named}    reply: {{status: 200}}\n    expect: {{verdict: {{effect: applied}}}}\n"
    )
    assert [case.passed for case in pack_tests.run(FAMILY, cases).cases] == [True, False]


def test_a_missing_file_is_said_so(home: Path) -> None:
    """Both files."""
    with pytest.raises(PackError, match="Give the path of a file of cases"):
        pack_tests.run(home / "crm.yaml")
    with pytest.raises(PackError, match="There is no such file"):
        pack_tests.run(home / "none.yaml")


def test_a_history_has_every_fact_that_a_case_may_give() -> None:
    """What interpretation may know, but for the two ids that follow from the case itself."""
    facts = {field.name for field in fields(History)} - {"canonical_id", "client_id"}
    assert facts == set(CaseHistory.model_fields)


MODELS = {
    "Case": case_models.Case,
    "Exact value": case_models.Exact,
    "History": case_models.CaseHistory,
    "Reply": case_models.CaseReply,
    "Expected": case_models.Expected,
    "Expected request": case_models.ExpectedRequest,
    "Expected read": case_models.ExpectedRead,
    "Expected look up": case_models.ExpectedLookUp,
    "Expected verdict": case_models.ExpectedVerdict,
}


def test_the_page_has_every_key_of_a_case_file() -> None:
    """Each model's table has its keys, in their order, and no other."""
    page = PAGE.read_text(encoding="utf-8")
    for title, model in MODELS.items():
        table = page.split(f"### {title}\n")[1].split("\n#")[0]
        assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(model.model_fields), title
    errors = [error.value for error in get_args(case_models.CaseReply.model_fields["error"].annotation)[0]]
    assert all(f"`{error}`" in page for error in errors)


def test_the_cases_on_the_page_pass(home: Path) -> None:
    """They are about the small CRM's pack, and what the page quotes of a failure is what people see."""
    page = PAGE.read_text(encoding="utf-8")
    [text] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert ran(home, text).is_passed
    failed = ran(home, text.replace("/people/17", "/persons/17"))
    quoted = page.split("```text\n")[1].split("```")[0]
    shown = [line for case in failed.cases for diff in case.differences for line in diff.lines]
    assert shown
    assert all(line in quoted for line in shown)
