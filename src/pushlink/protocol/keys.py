"""Where the key of a create stands in its request: a header, a parameter of the query, or a place in the body.

It is frozen with the request, so a repeat has the key of the first send by being the same bytes.
"""

from __future__ import annotations

from pushlink.protocol.contracts import CreateContract, UpdateContract
from pushlink.protocol.placeholders import IDEMPOTENCY_KEY, Variables


def with_key(create: CreateContract) -> CreateContract:
    """The create with its key in the query or in the body, where the pack wants it there."""
    key = create.idempotency
    placeholder = f"{{{IDEMPOTENCY_KEY}}}"
    if key is None or key.location == "header":
        return create
    if key.location == "query":
        return create.model_copy(update={"query": {**create.query, key.name: placeholder}})
    body = create.body.model_copy(update={"merge": {**create.body.merge, key.name: placeholder}})
    return create.model_copy(update={"body": body})


def key_header(contract: CreateContract | UpdateContract, variables: Variables) -> dict[str, str]:
    """The header that carries the key; none where it stands elsewhere, and none on an update."""
    key = contract.idempotency if isinstance(contract, CreateContract) else None
    text = variables.get(IDEMPOTENCY_KEY)
    if key is None or key.location != "header" or not text:
        return {}
    return {key.name: f'"{text}"' if key.quoted else text}
