"""What the keys of replay contracts, look-ups by a stamp and sandboxes mean; a part of `reference.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from pushlink.packs.model import Probe, ProbeCount
from pushlink.protocol import contracts

#: For each model in the order of the document, what its keys mean.
REPLAY_MEANINGS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    contracts.Stamp: {
        "format": "`uuid`, or `token`: its 32 hexadecimal digits.",
        "prefix": "A text before it. Letters, digits, `.`, `_` and `-`.",
    },
    contracts.Idempotency: {
        "in": "Whether the key stands in a `header`, in the `query`, or in the `body`.",
        "name": "The name of the header or parameter; in a body the JSON Pointer to its place.",
        "format": "How the key is written: `uuid`, `uuid_v4` where a version 4 is asked for, `token`: 32 digits.",
        "quoted": "Whether a header has it in quotes, as RFC 8941 writes texts.",
        "first_sent": "The header that says when the first send was, where the remote asks for one.",
        "requires": "The preferences without which the remote does not look at the key.",
        "scope": "What the key belongs to. A key of a `credential` ends when that is changed.",
        "lifetime": "How long after the first send the remote remembers it. Unknown is taken as 15 minutes.",
        "margin": "How much earlier the last repeat starts at the latest.",
        "body_bytes_max": "The longest body that the remote remembers a key for.",
        "receipt": "An answer was given before when all of these hold. It settles a doubt, refusals too.",
        "stores": "Which answers the remote keeps under the key. `all` keeps failures, which are not asked for again.",
        "mismatch": "The key came with another body when one of these holds. It parks at once: it is a defect.",
        "in_flight": "The first send is still at work when one of these holds. It is asked again later.",
    },
    contracts.Repeat: {
        "kind": "`conditional`: a repeat is refused as `exists` says. `upsert`: it writes the same record again.",
        "exists": "An answer to a repeat means that our own first send took effect when one of these holds.",
        "existing_id": "Where that answer names the record. Without it, it is the id that the create gave it.",
        "lifetime": "How long after the first send it is repeated. Unknown is taken as 15 minutes.",
        "margin": "How much earlier the last repeat starts at the latest.",
    },
    contracts.StampLookUp: {
        "method": "`POST` where the remote is searched with a body. A look-up changes nothing there.",
        "body": "The JSON of a `POST`: literals, and the same variables as whole texts.",
        "path": "The path below `base_url`, with `{stamp}`, `{client_id}` and the profile's variables.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "job": "Not used here.",
        "key": "The JSON Pointer to what the create's own body has, as `{key}`.",
        "status": "The statuses of an answer that is read. Any other one says nothing.",
        "done": "The answer is read when all of these hold. Otherwise it says nothing.",
        "failed": "The answer says nothing when one of these holds.",
        "only": "Not used here.",
        "id": "Where the id stands in the found item, in order, as if the item were the whole answer.",
        "every": "How far apart the calls are, and how long after the doubt the first one is.",
        "timeout": "How long after the last send it is asked. Proof of absence is waited for in any case.",
        "items": "The JSON Pointer to the list of what was found. Without it, the whole answer is the one item.",
        "match": "The JSON Pointer to the stamp in an item. Only items that have ours count, and only one may.",
        "none": "Nothing was found when one of these holds, such as a 404. An empty list says so too.",
        "consistency": "`strong`: a record is shown at once. `index`: after a lag.",
        "lag": "How much later an index shows a new record at most.",
        "absence_is_proof": "Whether finding nothing, after the settle time and the lag, proves that nothing was made.",
        "misses_min": "How many look-ups in a row must find nothing for that.",
    },
    contracts.Sandbox: {
        "base_url": "The address of the sandbox, in place of the profile's own.",
        "credential_ref": "Its credential, in place of the profile's own.",
        "variables": "Values of the profile's variables that differ there.",
    },
}

#: The same for how a trial makes its record.
PROBE_MEANINGS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    Probe: {
        "values": "The source fields of the record that is made. `{nonce}` in a text is new in each trial.",
        "read": "The path of a GET of the record, with `{remote_id}`.",
        "delete": "The path of the request that takes it away again, with `{remote_id}`.",
        "delete_method": "The method of that request.",
        "count": "A list of what the trial made. Without it, the `lookup` of the create counts.",
    },
    ProbeCount: {
        "path": "The path of the list.",
        "query": "Its parameters: literals with `{nonce}` in them, `{stamp}`, `{remote_id}` or `{client_id}`.",
        "items": "The JSON Pointer to the list in the answer. It must have exactly one item.",
    },
}
