from __future__ import annotations

import datetime as dt
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import action, profile
from pushlink.errors import Code, ConfigurationError
from pushlink.protocol.fingerprints import fingerprints, profile_hash
from pushlink.protocol.snapshots import (
    ActionSnapshot,
    AuthoritySnapshot,
    Digest,
    ProfileSnapshot,
    SourceValue,
    SourceValues,
    WritebackSnapshot,
    canonical,
    canonical_texts,
    read_time,
    thaw,
    write_time,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "documents_v1.json").read_text(encoding="utf-8"))

MOMENT = dt.datetime(2026, 3, 1, 23, 30, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))

ACTION = action(
    create={
        "method": "PUT",
        "path": "/crm/things",
        "headers": {"X-Api-Version": "2"},
        "body": {"envelope": {"data": None, "n": 1}, "insert_at": "/data"},
        "success": {"status": [201]},
        "response": {
            "id": [{"from": "$response.header.Location", "regex": ".*/([^/]+)", "decode": "percent"}],
            "id_rule": {"canonical": "integer_v1", "pattern": "[0-9]+", "length_max": 20},
            "candidates": [{"from": "$response.body#/message", "regex": ".*ID ([0-9]+)"}],
        },
    },
    update={"path": "/crm/things/{remote_id}", "semantics": "replace", "idempotent": True},
    mappings=[
        {"source": "price", "target": "/price", "encode": {"decimal_string": 2}, "clear": "omit"},
        {"source": None, "constant": "crm", "target": "/origin", "operations": ["create"]},
        {"source": "born", "target": "/born", "encode": {"datetime": "rfc3339", "zone": "Europe/Berlin"}},
    ],
    mirror={"remote_id_field": "acme_id", "provenance_field": "acme_source", "provenance_value": "acme"},
)
PROFILE = profile(
    destination_scope="tenant-42",
    credential_ref="env:ACME_TOKEN",
    headers={"Accept": "*/*"},
    timeouts={"connect": "1s", "total": "90s"},
    retry={"attempts": 3, "backoff": {"base": "500ms", "cap": "1h"}},
    expires_after="30d",
    waives={"endpoint": True},
)

#: One document of every kind; the golden file holds what release 1 wrote for them.
SNAPSHOTS: dict[str, Any] = {
    "action": ActionSnapshot(contract=ACTION),
    "action with defaults": ActionSnapshot(contract=action()),
    "profile": ProfileSnapshot(contract=PROFILE, credential_generation="g-7"),
    "profile with defaults": ProfileSnapshot(contract=profile(), credential_generation=""),
    "authority": AuthoritySnapshot(
        user_id="user-1",
        source_object="Thing",
        source_record_id="t2:AD,i1:7",
        allowed_fields=("name", "born"),
        decided_at=MOMENT,
        policy_digest="sha256:00",
        mapping_fingerprint=Digest("mapping1:00"),
    ),
    "writeback": WritebackSnapshot(
        source_object="Thing",
        source_record_id="7",
        remote_id_field="acme_id",
        provenance_field=None,
        provenance_value=None,
        expected_remote_id=None,
        expected_provenance="old",
    ),
    "values": SourceValues(
        values={
            "null": None,
            "true": True,
            "text": "Zoë \u2028 \U0001f600",
            "integer": 2**70,
            "decimal": Decimal("19.990"),
            "moment": MOMENT,
            "date": dt.date(2026, 3, 1),
            "time": dt.time(9, 5, 0, 7),
            "list": ("b", "a", ""),
        }
    ),
}


@pytest.mark.rule("D-43")
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_frozen_document_of_release_1_is_read_and_written_as_it_was(name: str) -> None:
    """Golden documents: the same value, the same canonical text, the same digest, now and in every later release."""
    snapshot, golden = SNAPSHOTS[name], GOLDEN["documents"][name]
    document = snapshot.document()
    assert (document.kind, document.text, document.digest) == (golden["kind"], golden["text"], golden["digest"])
    assert type(snapshot).read(golden["text"]).document() == document
    assert golden["digest"] == "sha256:" + hashlib.sha256(golden["text"].encode()).hexdigest()


@pytest.mark.rule("D-43")
def test_the_fingerprints_of_release_1_are_what_they_were() -> None:
    """Each surface's digest is pinned with its version; a change of the rule needs a new version."""
    assert {surface.value: digest for surface, digest in fingerprints(ACTION, PROFILE).items()} == GOLDEN[
        "fingerprints"
    ]
    assert profile_hash(PROFILE) == GOLDEN["profile_hash"]


def test_a_snapshot_reads_back_equal() -> None:
    """Nothing is lost and nothing is rounded; times come back as the same moment."""
    for name in ("action", "action with defaults", "profile", "profile with defaults", "writeback", "values"):
        snapshot = SNAPSHOTS[name]
        assert type(snapshot).read(snapshot.document().text) == snapshot
    authority = SNAPSHOTS["authority"]
    read = AuthoritySnapshot.read(authority.document().text)
    assert read.allowed_fields == ("born", "name")
    assert read.decided_at == MOMENT


@pytest.mark.rule("D-43")
@pytest.mark.parametrize(
    "text", ['{"kind":"values","format":2,"content":{}}', '{"kind":"action","format":1,"content":{}}', "{}"]
)
def test_a_document_of_a_later_format_or_another_kind_is_refused(text: str) -> None:
    """An older release never reads what it does not understand."""
    with pytest.raises(ConfigurationError) as caught:
        thaw("values", text)
    assert caught.value.code is Code.SCHEMA_OUTDATED


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3).map(tuple),
)


@pytest.mark.rule("D-41")
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), scalars, max_size=5))
def test_source_values_are_frozen_exactly(fields: dict[str, SourceValue]) -> None:
    """Every value reads back equal, of the same type, with the same digits."""
    read = SourceValues.read(SourceValues(values=fields).document().text).values
    assert read == fields
    for name, value in fields.items():
        assert type(read[name]) is type(value)
        assert str(read[name]) == str(value)


@pytest.mark.rule("D-41")
@given(st.datetimes(timezones=st.timezones()))
def test_times_are_written_in_utc_with_microseconds(moment: dt.datetime) -> None:
    """Always the same width, so that the order of texts is the order of moments."""
    try:
        text = write_time(moment)
    except OverflowError:
        return
    assert len(text) == 27
    assert read_time(text) == moment.astimezone(dt.UTC)


@pytest.mark.parametrize(
    "value",
    [7, 1.5, [], ["x"], {}, {"integer": 7}, {"colour": "red"}, {"list": "x"}, {"integer": "1", "decimal": "2"}],
)
def test_a_value_of_no_known_kind_is_not_read_as_one(value: object) -> None:
    """A text stands for itself; every other value is one word of its kind, and what it is."""
    document = canonical({"kind": "values", "format": 1, "content": {"name": value}}).decode()
    with pytest.raises(ValueError, match="not a frozen source value"):
        SourceValues.read(document)


def test_a_naive_time_is_never_frozen() -> None:
    """Somebody has to say in which zone it was."""
    with pytest.raises(ValueError, match="naive"):
        write_time(MOMENT.replace(tzinfo=None))


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1),
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_an_object_of_texts_has_the_same_canonical_form_by_the_quicker_encoder(document: dict[str, str | None]) -> None:
    """Every control, quote and plane: seals of before hold."""
    assert canonical_texts(document) == canonical(document)
    assert canonical_texts({"a": "".join(map(chr, range(0x120)))}) == canonical({"a": "".join(map(chr, range(0x120)))})
