from __future__ import annotations

import datetime as dt
import zoneinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import mapping, values
from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.snapshots import SourceValue
from pushlink.protocol.values import CONVERSIONS, Omitted, encode_problems, encode_value

NOON = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
LATE = dt.datetime(2026, 3, 1, 23, 30, 1, 5, tzinfo=dt.UTC)
SECRET_TEXT = "s3cr3t-value"


def encoded(value: SourceValue, **encode: Any) -> object:
    return encode_value(mapping(encode=encode), values(f=value))


def refused(value: SourceValue, **encode: Any) -> str:
    result = encoded(value, **encode)
    assert isinstance(result, RenderFailure)
    assert result.code is Code.VALUE_UNSENDABLE
    assert result.evidence == {"field": "f", "target": "/f"}
    return result.message


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (True, "true"),
        (0, "0"),
        (2**80, "1208925819614629174706176"),
        (Decimal("19.990"), "19.990"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.10"), "-0.10"),
        ("Zoë\n", '"Zoë\\n"'),
        (dt.date(2026, 3, 1), '"2026-03-01"'),
        (dt.time(9, 5), '"09:05:00"'),
        (LATE, '"2026-03-01T23:30:01.000005Z"'),
        (NOON.astimezone(zoneinfo.ZoneInfo("Asia/Tokyo")), '"2026-03-01T12:00:00Z"'),
        (("b", "a"), '["b","a"]'),
    ],
)
def test_without_an_encoding_a_value_keeps_its_digits_and_its_moment(value: SourceValue, json: str) -> None:
    """Numbers come out as they are, times in UTC, lists in their order."""
    result = encoded(value)
    assert not isinstance(result, RenderFailure | Omitted)
    assert jsontext.write(result) == json  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "encode", "expected"),
    [
        (7, {"string": True}, "7"),
        (Decimal("7.50"), {"string": True}, "7.50"),
        (True, {"string": True}, "true"),
        (NOON, {"string": True}, "2026-03-01T12:00:00Z"),
        (Decimal("19.9"), {"decimal_string": 2}, "19.90"),
        (Decimal("19.900"), {"decimal_string": 2}, "19.90"),
        (5, {"decimal_string": 3}, "5.000"),
        (Decimal("0.05"), {"decimal_string": 2}, "0.05"),
        (Decimal("-0.00"), {"decimal_string": 2}, "0.00"),
        (Decimal("-1234.50"), {"decimal_string": 1}, "-1234.5"),
        (Decimal("1E+2"), {"decimal_string": 0}, "100"),
        (Decimal("19.99"), {"minor_units": 2}, 1999),
        (Decimal("-0.01"), {"minor_units": 2}, -1),
        (12, {"minor_units": 0}, 12),
        (dt.date(2026, 3, 1), {"date": "%d.%m.%Y"}, "01.03.2026"),
        (LATE, {"date": "%Y-%m-%d"}, "2026-03-01"),
        (LATE, {"date": "%Y-%m-%d", "zone": "Europe/Berlin"}, "2026-03-02"),
        (LATE, {"datetime": "%Y%m%dT%H%M%S.%f%z", "zone": "Europe/Berlin"}, "20260302T003001.000005+0100"),
        (LATE, {"datetime": "%I:%M %p %y %j %%"}, "11:30 PM 26 060 %"),
        (NOON, {"datetime": "%I %p"}, "12 PM"),
        (NOON.replace(hour=0), {"datetime": "%I %p"}, "12 AM"),
        (NOON.replace(hour=11), {"datetime": "%I %p"}, "11 AM"),
        (LATE, {"datetime": "rfc3339", "zone": "America/New_York"}, "2026-03-01T18:30:01.000005-05:00"),
        (LATE, {"zone": "America/New_York"}, "2026-03-01T18:30:01.000005-05:00"),
        (dt.datetime(7, 1, 2, tzinfo=dt.UTC), {"date": "%Y"}, "0007"),
        (LATE, {"epoch": "s"}, 1772407801),
        (LATE, {"epoch": "ms"}, 1772407801000),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=dt.UTC), {"epoch": "s"}, -1),
        ("a", {"enum_map": {"a": "A"}}, "A"),
        (3, {"enum_map": {"3": None}}, None),
        (("a", "b"), {"enum_map": {"a": 1, "b": 2}}, [1, 2]),
        (True, {"bool_map": {"true": "Y", "false": "N"}}, "Y"),
        (("a", "b"), {"join": ";"}, "a;b"),
        ((), {"join": ";"}, ""),
        (("a",), {"json_string": True}, '["a"]'),
        (Decimal("1.50"), {"json_string": True}, "1.50"),
        ("a", {"wrap": "value"}, {"value": "a"}),
        ("a", {"wrap": "value", "json_string": True}, '{"value":"a"}'),
        (" Anna@Example.COM ", {"lower_trim": True}, "anna@example.com"),
        ("ÄÖÜäöü", {"truncate": 4}, "ÄÖÜä"),
        (" AbCdE ", {"lower_trim": True, "truncate": 3, "wrap": "v"}, {"v": "abc"}),
        (False, {"string": False, "wrap": "v"}, {"v": False}),
    ],
)
def test_each_encoding_says_its_value_exactly(value: SourceValue, encode: dict[str, Any], expected: object) -> None:
    """One row for each encoding and each sensible combination: normalise, convert, shorten, wrap."""
    result = encoded(value, **encode)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.rule("C-056", "D-41")
@pytest.mark.parametrize(
    ("zone", "milliseconds"),
    [(None, 1772323200000), ("America/New_York", 1772341200000), ("Asia/Kolkata", 1772303400000)],
)
def test_a_date_as_epoch_is_its_own_midnight_in_the_declared_zone(zone: str | None, milliseconds: int) -> None:
    """A calendar date never shifts by a day: unit and zone are declared, UTC when they are not."""
    assert encoded(dt.date(2026, 3, 1), epoch="ms", zone=zone) == milliseconds


@pytest.mark.rule("D-41")
@pytest.mark.parametrize("machine_zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
def test_nothing_depends_on_the_zone_of_the_machine(machine_zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same value renders alike wherever the process runs."""
    import time

    monkeypatch.setenv("TZ", machine_zone)
    time.tzset()
    try:
        assert encoded(LATE, date="%Y-%m-%d") == "2026-03-01"
        assert encoded(dt.date(2026, 3, 1), epoch="s") == 1772323200
        assert encoded(LATE) == "2026-03-01T23:30:01.000005Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("value", "encode"),
    [
        (Decimal("19.999"), {"decimal_string": 2}),
        (Decimal("0.001"), {"minor_units": 2}),
        (True, {"decimal_string": 2}),
        ("19.99", {"minor_units": 2}),
        (Decimal("NaN"), {}),
        (Decimal("Infinity"), {"string": True}),
        (Decimal("1E+999999"), {}),
        (10**4000, {}),
        (10**4000, {"string": True}),
        ("a\ud800", {}),
        (("ok", "a\ud800"), {}),
        (LATE.replace(tzinfo=None), {}),
        (LATE.replace(tzinfo=None), {"epoch": "s"}),
        (dt.date(2026, 3, 1), {"datetime": "rfc3339"}),
        ("2026-03-01", {"date": "%Y"}),
        ("", {"epoch": "s"}),
        (dt.datetime(1, 1, 1, tzinfo=dt.UTC), {"datetime": "rfc3339", "zone": "America/New_York"}),
        (dt.datetime(1880, 1, 1, tzinfo=dt.UTC), {"datetime": "rfc3339", "zone": "Europe/Berlin"}),
        ("c", {"enum_map": {"a": "A"}}),
        (False, {"bool_map": {"true": "Y"}}),
        (0, {"bool_map": {"false": "N"}}),
        ("a", {"join": ";"}),
        (("a;b", "c"), {"join": ";"}),
        (5, {"lower_trim": True}),
        (5, {"truncate": 2}),
        (("a",), {"string": True}),
    ],
)
def test_what_cannot_be_said_exactly_is_refused_and_never_guessed(value: SourceValue, encode: dict[str, Any]) -> None:
    """No rounding, no silent conversion, no default entry, and the refusal names field and target only."""
    refused(value, **encode)


@pytest.mark.parametrize("target", ["/f", ""])
@pytest.mark.parametrize("of", [{"source": "f"}, {"source": None, "constant": "x"}])
def test_a_refusal_says_what_cannot_be_sent_and_where_to(of: dict[str, Any], target: str) -> None:
    """In words where there is no field, or no pointer."""
    result = encode_value(mapping(**of, target=target, encode={"epoch": "s"}), values(f="x"))
    assert isinstance(result, RenderFailure)
    what = "field 'f'" if of["source"] else "a constant"
    assert result.message.startswith(f"The value of {what} cannot be sent to {target or 'the whole body'}: ")


def test_a_zone_may_be_off_by_an_odd_number_of_minutes() -> None:
    """RFC 3339 writes minutes, whatever their number; what is off by seconds as well, as Liberia was, it cannot say."""
    then = dt.datetime(1990, 1, 1, tzinfo=dt.UTC)
    assert encoded(then, datetime="rfc3339", zone="Asia/Kathmandu") == "1990-01-01T05:45:00+05:45"
    refused(dt.datetime(1960, 1, 1, tzinfo=dt.UTC), datetime="rfc3339", zone="Africa/Monrovia")


@pytest.mark.parametrize(
    "encode",
    [{"epoch": "s"}, {"date": "%Y"}, {"enum_map": {"x": 1}}, {"minor_units": 2}, {"join": ","}, {"bool_map": {}}],
)
def test_a_refused_value_is_never_in_its_refusal(encode: dict[str, Any]) -> None:
    """Message and evidence name the field; whoever reads them may not be allowed to read the value."""
    result = encoded(SECRET_TEXT, **encode)
    assert isinstance(result, RenderFailure)
    assert SECRET_TEXT not in f"{result.message} {dict(result.evidence)}"


def test_absent_null_and_empty_are_three_things() -> None:
    """An absent field is not sent, a null one is sent as its clear rule says, an empty text is a value."""
    rule = mapping()
    assert encode_value(rule, values()) is Omitted.OMITTED
    assert encode_value(rule, values(f=None)) is None
    assert encode_value(rule, values(f="")) == ""


@pytest.mark.parametrize(
    ("clear", "expected"),
    [("null", None), ("empty_string", ""), ("omit", Omitted.OMITTED), ("false", False)],
)
def test_null_is_said_as_the_mapping_declares(clear: str, expected: object) -> None:
    """The four ways to clear a value, whatever its encoding would do with a value."""
    assert encode_value(mapping(clear=clear, encode={"epoch": "s"}), values(f=None)) is expected


@pytest.mark.parametrize("constant", ["x", 0, False, None])
def test_a_constant_is_sent_as_it_is_written(constant: object) -> None:
    """Constants need no source field; a null constant is JSON null, whatever `clear` says."""
    rule = mapping(source=None, constant=constant, clear="omit")
    assert encode_value(rule, values()) is constant or encode_value(rule, values()) == constant


@pytest.mark.parametrize(
    ("encode", "words"),
    [
        ({"string": True, "join": ","}, "converts once"),
        ({"decimal_string": 0, "minor_units": 0}, "converts once"),
        ({"join": ",", "zone": "UTC"}, "no meaning"),
        ({"zone": "Mars/Olympus"}, "IANA"),
        ({"zone": "../../etc/passwd"}, "IANA"),
        ({"date": "%A"}, "%A"),
        ({"datetime": "%c"}, "%c"),
        ({"datetime": "%"}, "not among"),
        ({"date": "%H"}, "time of day"),
        ({"date": "rfc3339"}, "time of day"),
        ({"join": ""}, "separator"),
    ],
)
def test_an_encoding_that_makes_no_sense_is_a_fault_of_the_mapping(encode: dict[str, Any], words: str) -> None:
    """A linter and the gate give the same reason, whatever the value."""
    rule = mapping(encode=encode)
    assert any(words in problem for problem in encode_problems(rule.encode))
    result = encode_value(rule, values(f="x"))
    assert isinstance(result, RenderFailure)
    assert result.code is Code.MAPPING_UNUSABLE


def test_a_null_is_also_refused_when_its_encoding_makes_no_sense() -> None:
    """A broken mapping does not work for some records."""
    result = encode_value(mapping(encode={"date": "%A"}), values(f=None))
    assert isinstance(result, RenderFailure)


@pytest.mark.rule("C-056", "D-41")
def test_a_moment_in_milliseconds_is_a_text_that_some_remotes_read() -> None:
    """A date is its midnight in the zone, five hours later in the west; a moment before 1970 is negative."""
    born = dt.date(2026, 1, 1)
    assert encode_value(mapping(encode={"ms_date": True}), values(f=born)) == "/Date(1767225600000)/"
    west = mapping(encode={"ms_date": True, "zone": "America/Bogota"})
    assert encode_value(west, values(f=born)) == "/Date(1767243600000)/"
    early = dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)
    assert encode_value(mapping(encode={"ms_date": True}), values(f=early)) == "/Date(-1)/"
    assert isinstance(encode_value(mapping(encode={"ms_date": True}), values(f="2026-01-01")), RenderFailure)


def test_a_digest_names_a_record_as_its_remote_would() -> None:
    """Normalised first and digested as UTF-8; a null is cleared, not digested."""
    rule = mapping(encode={"lower_trim": True, "md5_hex": True})
    assert encode_value(rule, values(f="Ada@Example.com ")) == encode_value(rule, values(f="ada@example.com"))
    assert encode_value(mapping(encode={"md5_hex": True}), values(f="a")) == "0cc175b9c0f1b6a831c399e269772661"
    assert encode_value(mapping(encode={"md5_hex": True, "truncate": 4}), values(f="a")) == "0cc1"
    assert encode_value(mapping(encode={"string": True, "md5_hex": True}), values(f=1)) == (
        "c4ca4238a0b923820dcc509a6f75849b"
    )
    assert isinstance(encode_value(mapping(encode={"md5_hex": True}), values(f=1)), RenderFailure)
    assert encode_value(rule, values(f=None)) is None


def test_a_sentinel_says_empty_in_the_remotes_own_words() -> None:
    """It is sent for null only, and whatever the encoding would do with a value."""
    rule = mapping(clear="sentinel", sentinel="#N/A", encode={"epoch": "s"})
    assert encode_value(rule, values(f=None)) == "#N/A"
    assert encode_value(mapping(clear="sentinel", sentinel=0), values(f=None)) == 0
    assert encode_value(mapping(clear="sentinel", sentinel="#N/A"), values(f="")) == ""


source_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.decimals(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, None])),
    st.dates(),
    st.times(),
    st.lists(st.text(), max_size=3).map(tuple),
)
one_conversion = st.sampled_from(CONVERSIONS).flatmap(
    lambda name: st.fixed_dictionaries(
        {
            name: {
                "string": st.just(True),
                "decimal_string": st.integers(0, 18),
                "minor_units": st.integers(0, 6),
                "date": st.just("%Y-%m-%d"),
                "datetime": st.sampled_from(["rfc3339", "%Y-%m-%dT%H:%M:%S%z"]),
                "epoch": st.sampled_from(["s", "ms"]),
                "ms_date": st.just(True),
                "enum_map": st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2),
                "bool_map": st.dictionaries(st.sampled_from(["true", "false"]), st.integers(0, 1), max_size=2),
                "join": st.text(min_size=1, max_size=2),
            }[name]
        }
    )
)


@given(value=source_values, encode=one_conversion | st.just({}), wrap=st.none() | st.text(max_size=2))
def test_every_value_is_sent_as_json_or_refused_by_a_value(
    value: SourceValue, encode: dict[str, Any], wrap: str | None
) -> None:
    """Encoding is total: no value and no encoding raises, and what comes out can be written."""
    result = encode_value(mapping(encode={**encode, "wrap": wrap}), values(f=value))
    if isinstance(result, RenderFailure):
        assert result.code in {Code.VALUE_UNSENDABLE, Code.MAPPING_UNUSABLE}
    elif not isinstance(result, Omitted) and jsontext.problem(result) is None:
        jsontext.read(jsontext.write(result).encode())


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12))
def test_a_decimal_keeps_every_digit_through_json(value: Decimal) -> None:
    """What is written reads back as the same number with the same digits."""
    parsed = jsontext.read(jsontext.write(value).encode())
    assert isinstance(parsed, jsontext.Number)
    assert parsed.text == format(value, "f")
