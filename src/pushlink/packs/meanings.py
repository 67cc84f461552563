"""What the keys of tokens and limits mean; `reference.py` puts them where they stand in the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from pushlink.protocol import contracts

TOKENS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    contracts.TokenRequest: {
        "url": "The token endpoint. It obeys the same rules of egress as every request.",
        "grant": "What `credential_ref` is: the client's secret (`client_credentials`), or a `refresh_token`.",
        "client_id": "The client's id, which is no secret.",
        "client_secret_ref": "With `refresh_token`: where the client's secret is found, if it has one.",
        "client_auth": "Whether the client is named in an `Authorization` header (`basic`) or in the form (`post`).",
        "scope": "The scopes that are asked for, with blanks between them.",
        "audience": "The audience that is asked for.",
        "old_stays_good": "With `refresh_token`: an old one may be used again when an answer was lost.",
        "same_account": "An answer with a token is about our account when all of these hold. Another token is never "
        "used, and what waits for it is held.",
        "early": "How long before its end an access token is replaced.",
    },
}

LIMITS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    contracts.SendLimits: {
        "rate": "Requests in a unit of time: `10/s`, `600/m`, `5000/h`, `100000/d`.",
        "burst": "How many of a rate may go at once after a pause.",
        "max_concurrency": "How many requests may be under way at once.",
    },
    contracts.Circuit: {
        "failures": "It opens at so many failures that are at least half of all answers. `0` never opens it.",
        "window": "The time in which they are counted.",
        "pause": "How long nothing is sent then. It doubles while the one request that tries fails, up to 16 times.",
    },
    contracts.Ordering: {
        "serialize_per": "What is sent one after the other: all of a `destination`, or what has the same `field`.",
        "field": "With `field`: the source field, such as the id of a parent. Its author must be allowed to read it.",
    },
}
