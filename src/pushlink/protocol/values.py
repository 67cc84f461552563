"""One source value becomes one JSON value: the closed list of encodings, exact or not at all.

An encoding is a short fixed pipeline: normalise (`lower_trim`), convert (one of ten), digest (`md5_hex`), shorten
(`truncate`), wrap (`wrap`, then `json_string`). A conversion never rounds and never guesses: a value that it cannot say
exactly is a failure. Times carry their zone; nothing here knows the machine's zone or its locale. Absent, null and
empty are three things: an absent field is not sent, a null one is sent as the mapping's `clear` says, an empty text is
a value.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import zoneinfo
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import Clear, Encode
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.jsontext import Json
from pushlink.protocol.snapshots import SourceValue, SourceValues


class Omitted(Enum):
    """A mapped value that is not sent at all, which is neither null nor empty."""

    OMITTED = "omitted"


Encoded: TypeAlias = Json | Omitted | RenderFailure

#: The conversions; an encoding may name one of them. The zone belongs to the four that write moments.
CONVERSIONS: Final = (
    "string",
    "decimal_string",
    "minor_units",
    "date",
    "datetime",
    "epoch",
    "ms_date",
    "enum_map",
    "bool_map",
    "join",
)

_CLEARED: Final[Mapping[Clear, Json | Omitted]] = {
    Clear.NULL: None,
    Clear.EMPTY_STRING: "",
    Clear.OMIT: Omitted.OMITTED,
    Clear.FALSE: False,
}

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS: Final = {"s": dt.timedelta(seconds=1), "ms": dt.timedelta(milliseconds=1)}
_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)

#: The directives of a time pattern. Names of days and months are left out: they would depend on a locale.
_DIRECTIVES: Final[Mapping[str, Callable[[dt.datetime], str]]] = {
    "Y": lambda moment: f"{moment.year:04d}",
    "y": lambda moment: f"{moment.year % 100:02d}",
    "m": lambda moment: f"{moment.month:02d}",
    "d": lambda moment: f"{moment.day:02d}",
    "j": lambda moment: f"{moment.timetuple().tm_yday:03d}",
    "H": lambda moment: f"{moment.hour:02d}",
    "I": lambda moment: f"{(moment.hour + 11) % 12 + 1:02d}",
    "p": lambda moment: "AM" if moment.hour < 12 else "PM",  # noqa: PLR2004  (noon)
    "M": lambda moment: f"{moment.minute:02d}",
    "S": lambda moment: f"{moment.second:02d}",
    "f": lambda moment: f"{moment.microsecond:06d}",
    "z": lambda moment: moment.strftime("%z"),
    "%": lambda _: "%",
}
_CLOCK_DIRECTIVES: Final = frozenset("HIpMSfz")


class _Unsendable(Exception):
    """The value cannot be said exactly; the argument says what was wanted."""


def encode_problems(encode: Encode) -> tuple[str, ...]:
    """What is wrong with an encoding as written, whatever the value; a linter asks here, and so does `encode_value`."""
    problems = []
    named = conversions(encode)
    if len(named) > 1:
        problems.append(f"an encoding converts once, not by {' and '.join(named)}")
    if encode.zone is not None:
        if named and named[0] not in {"date", "datetime", "epoch", "ms_date"}:
            problems.append(f"zone has no meaning for {named[0]}")
        if _zone(encode.zone) is None:
            problems.append("zone is no IANA time zone")
    for name, pattern in (("date", encode.date), ("datetime", encode.datetime)):
        if pattern is not None and pattern != "rfc3339":
            problems.extend(f"{name}: {problem}" for problem in _pattern_problems(pattern))
    if encode.join == "":
        problems.append("join: without a separator the items cannot be told apart")
    if encode.date is not None and (encode.date == "rfc3339" or _CLOCK_DIRECTIVES & _directives(encode.date)):
        problems.append("date: a calendar date has no time of day")
    return tuple(problems)


def conversions(encode: Encode) -> tuple[str, ...]:
    """The names of the conversions that an encoding asks for; flags that are written as false do not count."""
    written = ((name, getattr(encode, name)) for name in CONVERSIONS)
    return tuple(name for name, part in written if part is not None and part is not False)


def encode_value(mapping: MappingContract, values: SourceValues) -> Encoded:
    """What `mapping` sends: a JSON value, nothing, or a failure that names the field and the target only."""
    if problems := encode_problems(mapping.encode):
        return _failure(Code.MAPPING_UNUSABLE, mapping, f"its encoding cannot be used: {problems[0]}")
    if mapping.source is None:
        value: SourceValue = mapping.constant
        if value is None:
            return None
    elif mapping.source not in values.values:
        return Omitted.OMITTED
    else:
        value = values.values[mapping.source]
        if value is None:
            return mapping.sentinel if mapping.clear is Clear.SENTINEL else _CLEARED[mapping.clear]
    try:
        return _pipeline(value, mapping.encode)
    except _Unsendable as problem:
        return _failure(Code.VALUE_UNSENDABLE, mapping, str(problem))


def natural(value: SourceValue, zone: dt.tzinfo = dt.UTC) -> Json:
    """A source value without a conversion: numbers with their digits, times in RFC 3339, lists as arrays."""
    match value:
        case dt.datetime():
            return _rfc3339(value, zone)
        case dt.date() | dt.time():
            return value.isoformat()
        case tuple():
            return list(value)
        case _:
            return value


def _pipeline(value: SourceValue, encode: Encode) -> Json:
    if encode.lower_trim:
        value = _text(value, "lower_trim").strip().lower()
    named = conversions(encode)
    zone = _zone(encode.zone) or dt.UTC
    result = _CONVERT[named[0]](value, encode, zone) if named else natural(value, zone)
    if encode.md5_hex:
        result = hashlib.md5(_text(result, "md5_hex").encode(), usedforsecurity=False).hexdigest()
    if encode.truncate is not None:
        result = _text(result, "truncate")[: encode.truncate]
    _check(result)
    if encode.wrap is not None:
        result = {encode.wrap: result}
    if encode.json_string:
        result = jsontext.write(result)
    return result


def _string(value: SourceValue, _encode: Encode, zone: dt.tzinfo) -> Json:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return _digits(value)
        case Decimal():
            return format(_finite(value), "f")
        case tuple() | None:
            raise _Unsendable("string takes one scalar")
        case _:
            return natural(value, zone)


def _decimal_string(value: SourceValue, encode: Encode, _zone: dt.tzinfo) -> Json:
    places = encode.decimal_string or 0
    return _shifted(value, places, places)


def _minor_units(value: SourceValue, encode: Encode, _zone: dt.tzinfo) -> Json:
    return int(_shifted(value, encode.minor_units or 0, 0))


def _shifted(value: SourceValue, places: int, shown: int) -> str:
    """The digits of `value` at `places` after the point, with a point before the last `shown` of them."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _Unsendable("wanted an integer or a decimal")
    sign, digits, exponent = _finite(Decimal(_digits(value)) if isinstance(value, int) else value).as_tuple()
    scaled = "".join(map(str, digits)) + "0" * max(0, places + int(exponent))
    cut = max(0, -(places + int(exponent)))
    if cut:
        if scaled[-cut:].strip("0"):
            raise _Unsendable(f"it has more than {places} digits after the point, and nothing is rounded")
        scaled = scaled[:-cut]
    scaled = (scaled.lstrip("0") or "0").rjust(shown + 1, "0")
    minus = "-" if sign and scaled.strip("0") else ""
    return minus + (f"{scaled[:-shown]}.{scaled[-shown:]}" if shown else scaled)


def _date(value: SourceValue, encode: Encode, zone: dt.tzinfo) -> Json:
    match value:
        case dt.datetime():
            moment = _in_zone(value, zone)
        case dt.date():
            moment = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        case _:
            raise _Unsendable("date takes a date or a datetime")
    return _strftime(moment, encode.date or "")


def _datetime(value: SourceValue, encode: Encode, zone: dt.tzinfo) -> Json:
    if not isinstance(value, dt.datetime):
        raise _Unsendable("datetime takes a datetime")
    if encode.datetime == "rfc3339":
        return _rfc3339(value, zone)
    return _strftime(_in_zone(value, zone), encode.datetime or "")


def _epoch(value: SourceValue, encode: Encode, zone: dt.tzinfo) -> Json:
    """Whole units since 1970; a date means its midnight in the zone, a finer moment is floored to the chosen unit."""
    match value:
        case dt.datetime():
            moment = _in_zone(value, dt.UTC)
        case dt.date():
            moment = dt.datetime(value.year, value.month, value.day, tzinfo=zone)
        case _:
            raise _Unsendable("epoch takes a date or a datetime")
    return (moment - _EPOCH) // _UNITS[encode.epoch or "s"]


def _ms_date(value: SourceValue, encode: Encode, zone: dt.tzinfo) -> Json:
    return f"/Date({_epoch(value, encode.model_copy(update={'epoch': 'ms'}), zone)})/"


def _enum_map(value: SourceValue, encode: Encode, zone: dt.tzinfo) -> Json:
    if isinstance(value, tuple):
        return [_enum_map(item, encode, zone) for item in value]
    key = _string(value, encode, zone)
    table = encode.enum_map or {}
    if not isinstance(key, str) or key not in table:
        raise _Unsendable("enum_map has no entry for it")
    return table[key]


def _bool_map(value: SourceValue, encode: Encode, _zone: dt.tzinfo) -> Json:
    if not isinstance(value, bool):
        raise _Unsendable("bool_map takes a boolean")
    table = encode.bool_map or {}
    if (key := "true" if value else "false") not in table:
        raise _Unsendable(f"bool_map has no entry for {key}")
    return table["true" if value else "false"]


def _join(value: SourceValue, encode: Encode, _zone: dt.tzinfo) -> Json:
    separator = encode.join or ""
    if not isinstance(value, tuple):
        raise _Unsendable("join takes a list")
    if any(separator in item for item in value):
        raise _Unsendable("an item contains the separator, so the joined text would read as other items")
    return separator.join(value)


_CONVERT: Final[Mapping[str, Callable[[SourceValue, Encode, dt.tzinfo], Json]]] = {
    "string": _string,
    "decimal_string": _decimal_string,
    "minor_units": _minor_units,
    "date": _date,
    "datetime": _datetime,
    "epoch": _epoch,
    "ms_date": _ms_date,
    "enum_map": _enum_map,
    "bool_map": _bool_map,
    "join": _join,
}


def _check(value: Json) -> None:
    if problem := jsontext.problem(value):
        raise _Unsendable(problem)


def _text(value: Json | SourceValue, name: str) -> str:
    if not isinstance(value, str):
        raise _Unsendable(f"{name} takes text")
    return value


def _digits(value: int) -> str:
    _check(value)
    return str(int(value))


def _finite(value: Decimal) -> Decimal:
    _check(value)
    return value


def _in_zone(moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    if moment.utcoffset() is None:
        raise _Unsendable("a datetime without a zone has no place here")
    try:
        return moment.astimezone(zone)
    except OverflowError:
        raise _Unsendable("the moment lies outside of the calendar in that zone") from None


def _rfc3339(moment: dt.datetime, zone: dt.tzinfo) -> str:
    local = _in_zone(moment, zone)
    offset = local.utcoffset() or dt.timedelta()
    if offset % dt.timedelta(minutes=1):
        raise _Unsendable("the zone's offset at that time is no whole number of minutes")
    return local.isoformat().replace("+00:00", "Z") if zone is dt.UTC else local.isoformat()


def _strftime(moment: dt.datetime, pattern: str) -> str:
    return _DIRECTIVE.sub(lambda match: _DIRECTIVES[match[1]](moment), pattern)


def _directives(pattern: str) -> frozenset[str]:
    return frozenset(match[1] for match in _DIRECTIVE.finditer(pattern))


def _pattern_problems(pattern: str) -> list[str]:
    unknown = sorted(_directives(pattern) - _DIRECTIVES.keys())
    return [f"%{letter} is not among {' '.join('%' + known for known in _DIRECTIVES)}" for letter in unknown]


def _zone(name: str | None) -> dt.tzinfo | None:
    if name is None:
        return None
    if name == "UTC":
        return dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _failure(code: Code, mapping: MappingContract, problem: str) -> RenderFailure:
    what = f"field {mapping.source!r}" if mapping.source is not None else "a constant"
    return RenderFailure(
        code=code,
        message=f"The value of {what} cannot be sent to {mapping.target or 'the whole body'}: {problem}.",
        evidence={"field": mapping.source, "target": mapping.target},
    )
