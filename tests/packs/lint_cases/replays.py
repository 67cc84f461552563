"""What a create in doubt is settled by."""

from __future__ import annotations

from packs.changes import PLACE, A, Case, Change, create_with, find_by_stamp, put


def key(**changes: object) -> Change:
    """A key that lint has nothing against."""
    return put("create", "idempotency", value={"name": "Idempotency-Key", "lifetime": "1h"} | changes)


def repeat(*, without: tuple[str, ...] = (), **changes: object) -> Change:
    """A repeat that lint has nothing against, or one that lacks something beside it."""
    sound = {"kind": "conditional", "exists": [{"status": [409]}], "existing_id": [PLACE]} | changes
    parts: dict[str, object] = {"repeat": {name: value for name, value in sound.items() if name not in without}}
    return create_with(**parts, **({"stamp": None, "body": {}} if "stamp" in without else {}))


CASES = [
    *(
        Case("idempotency", key(**bad), f"{A}.create.idempotency{path}", key(**good))
        for bad, path, good in (
            ({"name": "Content-Length"}, ".name", {"in": "query", "name": "requestid"}),
            ({"first_sent": "Date"}, ".first_sent", {"first_sent": "Repeatability-First-Sent"}),
            ({"in": "body", "name": "request_id"}, ".name", {"in": "body", "name": "/request_id", "format": "token"}),
            ({"in": "body", "name": "/name"}, ".name", {"in": "body", "name": "/request_id"}),
            ({"in": "query", "name": "id", "quoted": True}, ".quoted", {"quoted": True}),
            ({"requires": ["respond-async"]}, ".requires", {"scope": "credential"}),
        )
    ),
    *(
        Case("repeat", bad, f"{A}.create.repeat{path}", good)
        for bad, path, good in (
            (repeat(without=("stamp",)), "", repeat()),
            (repeat(without=("exists",)), ".exists", repeat(kind="upsert", exists=[], existing_id=[])),
            (repeat(without=("existing_id",)), ".existing_id", repeat()),
            (repeat(kind="upsert"), ".exists", repeat()),
            (create_with(idempotency={"name": "Key"}, repeat={"kind": "upsert"}), "", repeat()),
        )
    ),
    Case(
        "repeat",
        create_with(precondition={"kind": "if_none_exist", "query": {"email": "a"}}, repeat={"kind": "conditional"}),
        f"{A}.create.repeat.kind",
        create_with(
            precondition={"kind": "if_none_exist", "query": {"ref": "{stamp}"}}, repeat={"kind": "conditional"}
        ),
    ),
    Case(
        "stamp",
        put(
            "create",
            "conflict",
            value=[{"when": [{"status": [409]}], "existing_id": [PLACE], "policy": "adopt_if_stamp"}],
        ),
        f"{A}.create.conflict[0].policy",
        find_by_stamp(),
    ),
    Case("lifetime", key(lifetime="1m"), f"{A}.create.idempotency", key(lifetime="1m", margin="10s")),
    Case("lifetime-unknown", key(lifetime=None), f"{A}.create.idempotency", key()),
    Case("lifetime", key(lifetime=None, margin="20m"), f"{A}.create.idempotency", key(lifetime=None)),
]
