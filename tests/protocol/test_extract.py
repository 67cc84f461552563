from __future__ import annotations

import json
import math
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import SLOTS, action, answer, failure
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import ActionContract, Canonical, IdExtractor
from pushlink.protocol.evidence import WireError
from pushlink.protocol.extract import (
    extract_again,
    extract_candidates,
    extract_first,
    extract_id,
    extractor_problem,
    parse_place,
)
from pushlink.protocol.identity import locator_key
from pushlink.protocol.patterns import full_match, pattern_problem
from pushlink.protocol.remoteids import Extracted, NoId, Reason, canonical_id, read_remote_id

LOCATION = {"from": "$response.header.Location", "regex": ".*/things/([^/?#]+)", "decode": "percent"}
CASE_15, CASE_18 = "001A0000006Vm9r", "001A0000006Vm9rIAC"


def reading(*extractors: dict[str, Any], **response: Any) -> ActionContract:
    return action(create={"path": "/v1/things", "response": {"id": list(extractors), **response}})


BODY = reading({"from": "$response.body#/id"})


def found(body: str | bytes, contract: ActionContract = BODY, **more: Any) -> str | Reason:
    result = extract_id(contract, answer(201, body, **more))
    return result.remote_id if isinstance(result, Extracted) else result.reason


@pytest.mark.rule("C-018", "D-25")
def test_an_id_can_stand_in_a_header_only_and_is_decoded_once() -> None:
    """`201` with a Location and no body: the last segment, by a regex, percent-decoded exactly once."""
    contract = reading(LOCATION, {"from": "$response.body#/id"})
    assert found("", contract, headers=(("location", "/v1/things/abc%2F1"),)) == "abc/1"
    assert found("", contract, headers=(("location", "/v1/things/a%252F1"),)) == "a%2F1"
    assert found('{"id": 7}', contract) == "7"
    assert found("", contract, headers=(("LOCATION", "https://x.example/v1/things/9?v=1"),)) is Reason.ABSENT


@pytest.mark.rule("C-034", "D-25")
@pytest.mark.parametrize(
    ("token", "result"),
    [
        ("653247040368672768", "653247040368672768"),
        ("9007199254740993", "9007199254740993"),
        ('"653247040368672768"', "653247040368672768"),
        ("0", "0"),
        ('"0"', "0"),
        ("-5", "-5"),
        ('"007"', "007"),
        ("1e3", Reason.WRONG_TYPE),
        ("1.0", Reason.WRONG_TYPE),
        ("-0", Reason.WRONG_TYPE),
        ("true", Reason.WRONG_TYPE),
        ("false", Reason.WRONG_TYPE),
        ("{}", Reason.WRONG_TYPE),
        ('["1"]', Reason.WRONG_TYPE),
        ("null", Reason.ABSENT),
        ('""', Reason.ABSENT),
        ("9" * 64, "9" * 64),
        ("9" * 65, Reason.NUMBER_TOO_LONG),
        ('"not found"', Reason.SENTENCE),
        ('"a\\nb"', Reason.SENTENCE),
        ('"a\\u00a0b"', Reason.SENTENCE),
        ('"\\u0000"', Reason.SENTENCE),
        ('"\\ud800"', Reason.UNDECODABLE),
        ('"things"', Reason.COLLECTION_NAME),
        ('"Things"', "Things"),
    ],
)
def test_an_id_is_a_text_or_an_integer_with_its_digits_and_nothing_else(token: str, result: str | Reason) -> None:
    """Presence decides and not truth; numbers keep every digit; what is no id is named with its reason."""
    assert found(f'{{"id": {token}}}') == result


@pytest.mark.rule("D-25")
@pytest.mark.parametrize(
    ("document", "result"),
    [
        ({"id": 0}, Reason.ABSENT),
        ({"id": "0"}, Reason.ABSENT),
        ({"id": "-"}, Reason.ABSENT),
        ({"id": "00"}, "00"),
        ({"id": 7}, "7"),
        ({"id": 0, "other": "x-1"}, "x-1"),
    ],
)
def test_a_text_that_means_none_is_no_id(document: Any, result: str | Reason) -> None:
    """What a remote writes where no record is, by its exact text; the next place is asked then."""
    contract = reading({"from": "$response.body#/id", "none": ["0", "-"]}, {"from": "$response.body#/other"})
    told = extract_id(contract, answer(200, json.dumps(document)))
    assert (told.reason if isinstance(told, NoId) else told.remote_id) == result


@pytest.mark.rule("C-039", "D-25")
@pytest.mark.parametrize("length", [482, 5000])
def test_an_id_of_any_length_is_kept_whole(length: int) -> None:
    """There is no cut and no limit, unless the profile declares one; then the whole text stays as evidence."""
    text = "x" * length
    assert found(json.dumps({"id": text})) == text
    limited = reading({"from": "$response.body#/id"}, id_rule={"length_max": 100})
    assert extract_id(limited, answer(201, json.dumps({"id": text}))) == NoId(
        reason=Reason.AGAINST_RULE, candidate=text
    )


@pytest.mark.rule("C-037", "D-25")
def test_two_spellings_of_one_id_have_one_locator() -> None:
    """The canonical form is named in the profile: 15 and 18 characters are one remote record."""
    contract = reading({"from": "$response.body#/id"}, id_rule={"canonical": "case_checksum_18_v1"})
    short, long = read_remote_id(contract, CASE_15), extract_id(contract, answer(201, json.dumps({"id": CASE_18})))
    assert isinstance(short, Extracted)
    assert isinstance(long, Extracted)
    assert (short.remote_id, long.remote_id) == (CASE_15, CASE_18)
    assert locator_key(SLOTS, scope="", canonical_id=short.canonical) == locator_key(
        SLOTS, scope="", canonical_id=long.canonical
    )


@pytest.mark.parametrize(
    ("form", "text", "canonical"),
    [
        (Canonical.EXACT_V1, "aB/ä", "aB/ä"),
        (Canonical.INTEGER_V1, "007", "7"),
        (Canonical.INTEGER_V1, "0", "0"),
        (Canonical.INTEGER_V1, "-0", "0"),
        (Canonical.INTEGER_V1, "-12", "-12"),
        (Canonical.INTEGER_V1, "12a", None),
        (Canonical.INTEGER_V1, "\u0661", None),
        (Canonical.UUID_LOWER_V1, "{5F0C1B1E-0000-4000-8000-00000000000A}", "5f0c1b1e-0000-4000-8000-00000000000a"),
        (Canonical.UUID_LOWER_V1, "5F0C1B1E00004000800000000000000A", "5f0c1b1e-0000-4000-8000-00000000000a"),
        (Canonical.UUID_LOWER_V1, "{5F0C1B1E00004000800000000000000A", None),
        (Canonical.UUID_LOWER_V1, "x", None),
        (Canonical.LOWER_V1, "AbÄ", "abÄ"),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_15, CASE_18),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_18, CASE_18),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_18.lower(), CASE_18),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_18.upper(), CASE_18),
        (Canonical.CASE_CHECKSUM_18_V1, "001a0000006Vm9rIAC", None),
        (Canonical.CASE_CHECKSUM_18_V1, "000000000000000BAA", None),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_15[:-1], None),
        (Canonical.CASE_CHECKSUM_18_V1, CASE_15 + "ä", None),
    ],
)
def test_each_canonical_form_is_what_its_name_says(form: Canonical, text: str, canonical: str | None) -> None:
    """Forms are closed and versioned; a text that has no such form is no id there."""
    assert canonical_id(form, text) == canonical


@given(st.text("abcXYZ019", min_size=15, max_size=15))
def test_the_case_checksum_restores_the_case(text: str) -> None:
    """All lower, all upper and the original spelling are one id."""
    canonical = canonical_id(Canonical.CASE_CHECKSUM_18_V1, text)
    assert canonical is not None
    assert canonical.startswith(text)
    for spelling in (canonical, canonical.lower(), canonical.upper()):
        assert canonical_id(Canonical.CASE_CHECKSUM_18_V1, spelling) == canonical


@given(form=st.sampled_from(Canonical), text=st.text(max_size=40) | st.from_regex(r"\A[0-9A-Fa-f-]{1,36}\Z"))
def test_a_canonical_form_is_its_own_canonical_form(form: Canonical, text: str) -> None:
    """Canonicalising twice changes nothing, so a stored canonical id compares for ever."""
    canonical = canonical_id(form, text)
    assert canonical is None or canonical_id(form, canonical) == canonical


@pytest.mark.rule("D-25")
def test_the_profiles_pattern_narrows_what_is_an_id() -> None:
    """The pattern holds for the whole text."""
    contract = reading({"from": "$response.body#/id"}, id_rule={"pattern": "[0-9]+"})
    assert found('{"id": "12"}', contract) == "12"
    assert found('{"id": "12x"}', contract) is Reason.AGAINST_RULE


@pytest.mark.parametrize(
    ("text", "rule", "reason"),
    [
        ("", {}, Reason.ABSENT),
        ("abc", {"length_max": 2}, Reason.AGAINST_RULE),
        ("abc", {"canonical": "integer_v1"}, Reason.NOT_CANONICAL),
        ("abc", {"canonical": "uuid_lower_v1"}, Reason.NOT_CANONICAL),
    ],
)
def test_an_id_that_a_person_gives_is_judged_as_one_from_a_reply(
    text: str, rule: dict[str, Any], reason: Reason
) -> None:
    """Adoption and relocation pass the same rules, bounds included."""
    result = read_remote_id(reading(id_rule=rule), text)
    assert isinstance(result, NoId)
    assert result.reason is reason
    assert isinstance(read_remote_id(reading(id_rule={"length_max": 3}), "abc"), Extracted)


def test_a_body_that_is_not_whole_is_never_parsed_but_a_header_still_counts() -> None:
    """Half of a number is a number: a cut body gives no id, a complete header does."""
    contract = reading({"from": "$response.body#/id"}, LOCATION)
    whole = '{"id": 12}'
    assert found(whole, contract, body_complete=False) is Reason.BODY_INCOMPLETE
    assert found(whole, contract, body_size=99) is Reason.BODY_INCOMPLETE
    assert found(whole, contract, body_complete=False, headers=(("location", "/things/9"),)) == "9"


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": 1, "id": 2}',
        b'{"id": 1, "x": {"a": 1, "a": 1}}',
        b'{"id": 1',
        b'{"id": 1} trailing',
        b"{'id': 1}",
        b'{"id": NaN}',
        b'{"id": 1, "x": Infinity}',
        b'{"id": 01}',
        b"\xff\xfe{\x00}\x00",
        b'{"id": "\xff"}',
        b"<html>",
        b"[" * 100_000,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b'{"id": "a\nb"}',
    ],
)
def test_a_reply_that_is_no_strict_json_gives_no_id(body: bytes) -> None:
    """Duplicate keys, wrong encodings, extensions of JSON and bottomless nesting are unreadable."""
    assert found(body) is Reason.BODY_UNREADABLE


def test_json_is_read_as_rfc_8259_allows() -> None:
    """A byte order mark in front is skipped, 64 levels are fine, brackets inside of strings count for nothing."""
    assert found(b'\xef\xbb\xbf{"id": 1}') == "1"
    assert found('{"id": 1, "x": ' + "[" * 63 + "]" * 63 + "}") == "1"
    assert found(json.dumps({"x": "[" * 200 + '\\"{', "id": 1})) == "1"
    assert found(json.dumps({"id": 1, "x": [[[]]] * 200})) == "1"
    assert found('{"id": 1, "x": [[],' + "[" * 62 + "]" * 62 + "]}") == "1"
    assert found('{"id": 1, "x": [[],' + "[" * 63 + "]" * 63 + "]}") is Reason.BODY_UNREADABLE
    assert found("", BODY) is Reason.ABSENT
    assert found("null", BODY) is Reason.ABSENT


@pytest.mark.parametrize(
    ("document", "is_written"),
    [(2**3_000 - 1, True), (-(2**3_000) + 1, True), (2**3_000, False)],
    ids=["the longest", "the longest below zero", "one bit more"],
)
def test_an_integer_is_written_up_to_its_bound(document: int, is_written: bool) -> None:
    """Three bits for each of the digits that a number may have."""
    assert (jsontext.problem(document) is None) is is_written


@pytest.mark.parametrize(("number", "is_written"), [(0.5, True), (math.nan, False), (math.inf, False)])
def test_a_float_is_written_where_json_has_one(number: float, is_written: bool) -> None:
    assert (jsontext.problem(number) is None) is is_written
    if not is_written:
        with pytest.raises(ValueError, match="JSON compliant"):
            jsontext.write(number)


@pytest.mark.parametrize(
    ("text", "is_written"),
    [("9" * 1_000, True), ("9" * 1_001, False), ("1E+999", True), ("1E+1000", False), ("1E-999", True)],
)
def test_a_decimal_is_written_up_to_its_bound(text: str, is_written: bool) -> None:
    """Its digits, and the zeros that its exponent would write."""
    assert (jsontext.problem(Decimal(text)) is None) is is_written


@pytest.mark.parametrize("open_close", [("[", "]"), ('{"a":', "}")])
def test_a_value_is_written_up_to_its_depth(open_close: tuple[str, str]) -> None:
    """Lists and objects alike; the innermost counts as well."""
    opening, closing = open_close

    def nested(levels: int) -> Any:
        return json.loads(opening * (levels - 1) + "[]" + closing * (levels - 1))

    assert jsontext.problem(nested(32)) is None
    assert jsontext.problem(nested(33)) == "it nests deeper than 32 levels"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_written_is_read_back(document: Any) -> None:
    """Reading keeps texts, structure and the digits of numbers."""

    def texts(value: Any) -> Any:
        if isinstance(value, list):
            return [texts(item) for item in value]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return jsontext.Number(str(value)) if is_number else value

    if jsontext.problem(document) is None:
        assert jsontext.read(jsontext.write(document).encode()) == texts(document)


@given(st.binary(max_size=60))
def test_reading_any_bytes_gives_a_value_or_one_error(data: bytes) -> None:
    """A hostile reply cannot raise anything else, and the error never quotes it."""
    reasons = {"", "not UTF-8", "not JSON", "a key stands twice in one object", "NaN and infinity have no JSON form"}
    assert reading_error(data) in reasons


def reading_error(data: bytes) -> str:
    try:
        jsontext.read(data)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("pointer", "result"),
    [
        ("/a~1b/0/~0", "1"),
        ("/a~1b/1", Reason.ABSENT),
        ("/a~1b/-", Reason.ABSENT),
        ("/a~1b/00", Reason.ABSENT),
        ("/a~1b/0", Reason.WRONG_TYPE),
    ],
)
def test_a_pointer_is_read_by_rfc_6901(pointer: str, result: str | Reason) -> None:
    """Escapes, array elements, and nothing for what is not there."""
    assert found('{"a/b": [{"~": 1}]}', reading({"from": f"$response.body#{pointer}"})) == result


def test_the_first_extractor_that_finds_something_decides() -> None:
    """Null and empty pass on to the next; what is found and is no id ends the search."""
    contract = reading({"from": "$response.body#/a"}, {"from": "$response.body#/b"})
    assert found('{"a": null, "b": 2}', contract) == "2"
    assert found('{"a": "", "b": 2}', contract) == "2"
    assert found('{"a": 1, "b": 2}', contract) == "1"
    assert found('{"a": 1.5, "b": 2}', contract) is Reason.WRONG_TYPE
    assert found('{"a": "no such", "b": 2}', contract) is Reason.SENTENCE


@pytest.mark.parametrize(
    ("headers", "result"),
    [
        ((("x-id", "7"), ("X-ID", "7")), "7"),
        ((("x-id", "7"), ("x-id", "8")), Reason.HEADER_REPEATED),
        ((("x-id", ""),), Reason.ABSENT),
        ((), Reason.ABSENT),
        ((("x-id", "%zz"),), Reason.UNDECODABLE),
        ((("x-id", "%ff"),), Reason.UNDECODABLE),
        ((("x-id", "100%"),), Reason.UNDECODABLE),
    ],
)
def test_a_header_says_one_thing(headers: tuple[tuple[str, str], ...], result: str | Reason) -> None:
    """Names have no case; two values are not one id; percent-encoding is strict."""
    contract = reading({"from": "$response.header.X-Id", "decode": "percent"})
    assert found("", contract, headers=headers) == result


@pytest.mark.parametrize(
    "extractor",
    [
        {"from": "$response.body.id"},
        {"from": "$request.body#/id"},
        {"from": "$response.body#id"},
        {"from": "$response.header."},
        {"from": "$.id"},
        {"from": "$response.body#/id", "regex": "no group"},
        {"from": "$response.body#/id", "regex": "(a)(b)"},
        {"from": "$response.body#/id", "regex": "((a)+)"},
        {"from": "$response.body#/id", "regex": "("},
    ],
)
def test_an_extractor_that_cannot_be_used_finds_nothing(extractor: dict[str, str]) -> None:
    """A linter and the run give the same answer; nothing is guessed from a broken rule."""
    assert extractor_problem(IdExtractor.model_validate(extractor))
    assert found('{"id": "a"}', reading(extractor)) is Reason.RULE_UNUSABLE


def test_a_status_is_a_place_where_there_is_one() -> None:
    """A call without an answer shows none."""
    extractors = [IdExtractor.model_validate({"from": "$statusCode"})]
    assert extract_first(extractors, answer(201)) == "201"
    assert extract_first(extractors, failure(WireError.READ)) is None


def test_an_action_without_an_extractor_has_no_ids() -> None:
    """There is no default place for an id."""
    assert found('{"id": 1}', reading()) is Reason.NO_EXTRACTOR


def test_the_three_kinds_of_places_are_told_apart() -> None:
    """Runtime expressions are closed: status, header, body."""
    kinds = {
        place.kind: place.name
        for source in ("$statusCode", "$response.header.X-A", "$response.body")
        if (place := parse_place(source))
    }
    assert kinds == {"status": "", "header": "x-a", "body": ""}


@pytest.mark.rule("D-27", "C-029")
@pytest.mark.parametrize(
    ("body", "candidates"),
    [
        ('{"message": "Contact already exists. Existing ID: 6001"}', ("6001",)),
        ('{"matches": []}', ()),
        ('{"matches": ["a1"]}', ("a1",)),
        ('{"matches": ["a1", 2, 3, "a1"]}', ("a1", "2", "3")),
        ('{"matches": [{"id": 1}, null, true, 1.5]}', ()),
        ('{"matches": [["a1"], "a2"]}', ("a2",)),
        ('{"message": "no id here"}', ()),
        ("<html>", ()),
    ],
)
def test_a_duplicate_answer_names_candidates_and_nothing_more(body: str, candidates: tuple[str, ...]) -> None:
    """None, one or several ids, from a sentence or a list; none of them becomes the id."""
    contract = reading(
        {"from": "$response.body#/id"},
        candidates=[
            {"from": "$response.body#/message", "regex": ".*Existing ID: ([0-9]+).*"},
            {"from": "$response.body#/matches"},
        ],
    )
    assert extract_candidates(contract, answer(409, body)) == candidates
    assert isinstance(extract_id(contract, answer(409, body)), NoId)


def test_a_composite_id_is_a_candidate_wherever_its_parts_stand() -> None:
    """In a header as well: it is evidence for a person, and nobody adopts it."""
    parts = [{"from": "$response.body#/a"}, {"from": "$response.header.X-B"}]
    contract = action(create={"response": {"composite": {"parts": parts, "separator": "/"}}})
    told = answer(409, '{"a": "1"}', headers=(("x-b", "2"),))
    assert extract_candidates(contract, told) == ("1/2",)
    assert extract_candidates(contract, answer(409, '{"a": "1"}')) == ()


def test_an_update_s_answer_names_a_composite_id_by_its_body_alone() -> None:
    """A header of it may name another resource, so a part that stands there says nothing about the record."""
    for part, other in (("$response.body#/b", "1/2"), ("$response.header.X-B", None)):
        parts = [{"from": "$response.body#/a"}, {"from": part}]
        contract = action(create={"response": {"composite": {"parts": parts, "separator": "/"}}})
        told = answer(200, '{"a": "1", "b": "2"}', headers=(("x-b", "2"),))
        found = extract_again(contract, told, "7")
        assert (found.canonical if isinstance(found, Extracted) else found) == other


def test_candidates_are_bounded() -> None:
    """A page of ids is no evidence for a person."""
    contract = reading(candidates=[{"from": "$response.body#/m"}])
    assert len(extract_candidates(contract, answer(409, json.dumps({"m": list(range(1000))})))) == 20


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|b)*x",
        "(?=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "(?i)a",
        ".*.*.*.*",
        "a{1,}b*c+d{2,}",
        "(",
        "a" * 501,
    ],
)
def test_a_pattern_that_could_run_for_long_is_refused(pattern: str) -> None:
    """No repeated group, look-around, back-reference or flag, and three open repeats at most."""
    assert pattern_problem(pattern)
    assert full_match(pattern, "a") is None


@pytest.mark.parametrize(
    "pattern", [".*/things/([^/]+)", r"\(x\)+", "[)*+]+", "(?:a|b)c", "a{3}", "(a)?b", r"[\]*+(]a"]
)
def test_an_honest_pattern_is_let_through(pattern: str) -> None:
    """Escapes and classes are no groups and no repeats."""
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "text"), [(".*a.*ab", "a" * 8_192), (".*a.*a.*b", "a" * 512), (".*a.*ab", "a" * 100_000)]
)
def test_a_hostile_text_cannot_make_a_pattern_run_for_long(pattern: str, text: str) -> None:
    """The longest text is bounded by the pattern's open repeats."""
    started = time.process_time()
    assert full_match(pattern, text) is None
    assert time.process_time() - started < 5


def test_patterns_and_texts_may_be_as_long_as_their_bounds() -> None:
    """The more open repeats a pattern has, the shorter its texts."""
    assert pattern_problem("a" * 500) is None
    assert pattern_problem("a" * 501)
    assert pattern_problem("a*a*a*a*") == "it has more than 3 open repeats"
    for pattern, longest in (("a{9}", 9), ("a*", 8_192), ("a*a*", 8_192), ("a*a*a*", 512)):
        assert full_match(pattern, "a" * longest)
        assert not full_match(pattern, "a" * (longest + 1))
