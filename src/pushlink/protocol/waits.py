"""How long an answer asks to be left alone: `Retry-After`, and the places that a profile declares.

A moment is read against the answer's own `Date`, so that a clock of ours that is wrong moves nothing; without one, the
database's time of the checkpoint stands for it, which is a little early and so waits a little longer.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Final

from pushlink.protocol import jsontext
from pushlink.protocol.contracts import RateLimit, Wait
from pushlink.protocol.criteria import all_hold
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import read_body
from pushlink.protocol.jsontext import Number
from pushlink.protocol.patterns import full_match, pattern_problem
from pushlink.protocol.remoteids import NoId

#: No remote may put a request off for longer by a header; a person looks at it before.
RETRY_AFTER_MS_MAX: Final = 86_400_000

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>\d{2}) (?P<month>[A-Z][a-z]{2}) (?P<year>\d{4}) "
    r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2}) GMT",
    re.ASCII,
)
_WHOLE_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_UNIT_MS: Final = {"seconds": 1_000, "milliseconds": 1}
_EPOCH: Final = re.compile(r"[0-9]{1,15}")
_DAY: Final = dt.timedelta(days=1)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_EPOCH_START: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def retry_after_ms(reply: StoredReply, received_at: dt.datetime | None = None) -> int | None:
    """What `Retry-After` asks for, as a delay: seconds, or a date that is read against the reply's own `Date`."""
    asked = _header(reply, "retry-after")
    if asked is None:
        return None
    if _WHOLE_SECONDS.fullmatch(asked):
        return min(int(asked) * 1_000, RETRY_AFTER_MS_MAX)
    return _until(_http_date(asked), reply, received_at, RETRY_AFTER_MS_MAX)


def throttle_ms(limit: RateLimit, reply: StoredReply, received_at: dt.datetime | None = None) -> int | None:
    """What a throttled answer asks for: the first declared place that says something, else `Retry-After`."""
    for wait in limit.wait:
        is_for_it = wait_problem(wait) is None and all_hold(wait.when, reply)
        found = _asked_ms(wait, reply, received_at, limit.cap_ms) if is_for_it else None
        if found is not None:
            return found
    asked = retry_after_ms(reply, received_at)
    return None if asked is None else min(asked, limit.cap_ms)


def wait_problem(wait: Wait) -> str | None:
    """Why a pack may not use this place of a wait; a linter asks here, and so does `throttle_ms`."""
    sources = [part for part in ("header", "pointer", "fixed_ms", "until") if getattr(wait, part) is not None]
    if len(sources) != 1:
        return "it names one of header, pointer, fixed and until"
    is_place = sources[0] in {"header", "pointer"}
    if not is_place and (wait.unit is not None or wait.regex is not None):
        return "unit and regex are about what stands at a header or a pointer"
    if is_place and wait.unit is None:
        return "it does not say in which unit the time stands there"
    if wait.regex is not None and (problem := pattern_problem(wait.regex, groups=1)):
        return f"regex: {problem}"
    return None


def _asked_ms(wait: Wait, reply: StoredReply, received_at: dt.datetime | None, cap_ms: int) -> int | None:
    if wait.fixed_ms is not None:
        return min(wait.fixed_ms, cap_ms)
    if wait.until is not None:
        start = _start(reply, received_at)
        if start is None:
            return None
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
        return min((midnight - start) // _MILLISECOND + 1, cap_ms)
    text = _text(wait, reply)
    if text is None:
        return None
    if wait.unit in _UNIT_MS:
        return min(int(Decimal(text) * _UNIT_MS[wait.unit]), cap_ms) if _SECONDS.fullmatch(text) else None
    return _until(_moment(wait.unit, text), reply, received_at, cap_ms)


def _text(wait: Wait, reply: StoredReply) -> str | None:
    if wait.header is not None:
        found = _header(reply, wait.header.lower())
    else:
        body = read_body(reply)
        value = None if isinstance(body, NoId) else jsontext.resolve(body, wait.pointer or "")
        found = value.text if isinstance(value, Number) else value if isinstance(value, str) else None
    if found is None or wait.regex is None:
        return found
    match = full_match(wait.regex, found)
    return None if match is None else match[1]


def _moment(unit: str | None, text: str) -> dt.datetime | None:
    if unit == "http_date":
        return _http_date(text)
    try:
        if unit == "iso8601":
            moment = dt.datetime.fromisoformat(text)
            return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        if _EPOCH.fullmatch(text):
            return _EPOCH_START + dt.timedelta(milliseconds=int(text) * (1 if unit == "epoch_ms" else 1_000))
    except (ValueError, OverflowError):
        return None
    return None


def _until(moment: dt.datetime | None, reply: StoredReply, received_at: dt.datetime | None, cap_ms: int) -> int | None:
    start = _start(reply, received_at)
    if moment is None or start is None:
        return None
    return max(0, min((moment - start) // _MILLISECOND, cap_ms))


def _start(reply: StoredReply, received_at: dt.datetime | None) -> dt.datetime | None:
    return _http_date(_header(reply, "date") or "") or received_at


def _header(reply: StoredReply, name: str) -> str | None:
    return next((value.strip() for header, value in reply.headers if header.lower() == name), None)


def _http_date(text: str) -> dt.datetime | None:
    match = _DATE.fullmatch(text)
    if match is None or match["month"] not in _MONTHS:
        return None
    year, day, hour, minute, second = (int(match[name]) for name in ("year", "day", "hour", "minute", "second"))
    try:
        return dt.datetime(year, _MONTHS.index(match["month"]) + 1, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None
