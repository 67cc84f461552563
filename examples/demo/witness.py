"""The comparison at the end of the demo: what the remote should hold, worked out from the CRM's rows alone.

It says by hand what the pack says as data, and shares no code with pushlink: two accounts of the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crm import Organisation, Person

STAGES = {"lead": "prospect", "customer": "active"}


def expected(record: Person | Organisation) -> dict[str, Any]:
    """The remote document of a record that was pushed."""
    if isinstance(record, Organisation):
        amount, founded = record.annual_revenue, record.founded_on
        return {
            "id": int(record.remote_id or 0),
            "name": record.name,
            "address": {"city": record.city, "country": record.country},
            "annual_revenue": None if amount is None else f"{amount:.2f}",
            "founded_on": None if founded is None else founded.isoformat(),
        }
    document: dict[str, Any] = {
        "id": int(record.remote_id or 0),
        "name": record.full_name,
        "email": (record.email or "").strip().lower(),
        "born_on": None if record.birthday is None else record.birthday.isoformat(),
        "stage": STAGES[record.status],
        "origin": "crm",
    }
    return document | ({"details": {"note": record.note}} if record.note else {})


def differences(
    kind: str, records: Iterable[Person | Organisation], held: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """A sentence for every way in which the two sides are not the same."""
    remote = {document["id"]: document for document in held}
    for record in records:
        wanted = expected(record)
        found = remote.pop(wanted["id"], None)
        name = f"{kind} {record.id}"
        if found is None:
            yield f"{name} has no remote record {record.remote_id}"
            continue
        for field in sorted(wanted.keys() | found.keys()):
            if wanted.get(field) != found.get(field) or (field in wanted) != (field in found):
                yield f"{name}, {field}: {wanted.get(field)!r} here, {found.get(field)!r} there"
    yield from (f"remote record {number} of {kind} belongs to nobody here" for number in remote)
