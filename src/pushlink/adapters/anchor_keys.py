"""Ed25519 signatures of anchors, with keys from the environment, from files, or public ones from the settings (S13).

Whoever can write the database and the file of anchors can write both anew; without the key it cannot sign what it
wrote. A key that is given as `public:BASE64` only checks, so that a machine that verifies need hold no secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pushlink.adapters.key_material import KEY_ID, decode_key, unusable_key
from pushlink.errors import ConfigurationError
from pushlink.ports import Credentials

#: What the settings write before a key that only checks.
PUBLIC: Final = "public:"

_SECTION: Final = "audit"

#: What is signed begins with this, so that no signature of these keys is of anything else.
_PURPOSE: Final = b"pushlink anchor v2\x00"


class AnchorKeys:
    """Signs with the key of `newest`, where there is one, and checks with all of them."""

    def __init__(
        self, secret: Mapping[str, bytes], *, newest: str | None, public: Mapping[str, bytes] | None = None
    ) -> None:
        for key_id in (*secret, *(public or {})):
            if not KEY_ID.fullmatch(key_id):
                raise unusable_key(_SECTION, key_id, "has no short id of letters, digits, . _ -")
        if newest is not None and newest not in secret:
            raise unusable_key(_SECTION, newest, "is to sign, and only its public half is there")
        self._secret = {key_id: Ed25519PrivateKey.from_private_bytes(key) for key_id, key in secret.items()}
        self._public = {key_id: key.public_key() for key_id, key in self._secret.items()}
        self._public |= {key_id: Ed25519PublicKey.from_public_bytes(key) for key_id, key in (public or {}).items()}
        self.newest = newest

    def __repr__(self) -> str:
        return f"{type(self).__name__}(newest={self.newest!r})"

    @property
    def checks(self) -> bool:
        """Whether there is a key at all."""
        return bool(self._public)

    def public_keys(self) -> dict[str, str]:
        """Every key as another machine's settings may name it to check with."""
        return {
            key_id: PUBLIC + base64.b64encode(key.public_bytes_raw()).decode() for key_id, key in self._public.items()
        }

    def sign(self, content: bytes) -> tuple[str, str]:
        """The id of the newest key, and its signature in base64. Raises `ConfigurationError` where no key signs."""
        if self.newest is None:
            raise ConfigurationError(
                "No key of the settings signs an anchor.", next_step="name it in sign_with of [audit]"
            )
        return self.newest, base64.b64encode(self._secret[self.newest].sign(_PURPOSE + content)).decode()

    def refuses(self, content: bytes, key: str | None, signature: str | None) -> str | None:
        """Why a signature is not believed; `None` for one that is."""
        if key is None or signature is None:
            return "it is not signed"
        known = self._public.get(key)
        if known is None:
            return f"it names the key {key!r}, which is none of the settings"
        try:
            known.verify(base64.b64decode(signature, validate=True), _PURPOSE + content)
        except (InvalidSignature, ValueError, binascii.Error):
            return "its signature does not hold"
        return None


def anchor_keys_of(references: Mapping[str, str], credentials: Credentials, *, newest: str | None) -> AnchorKeys:
    """The keys of settings: `env:NAME` and `file:/path` sign and check, `public:BASE64` only checks."""
    given = {key_id: ref for key_id, ref in references.items() if not ref.startswith(PUBLIC)}
    secret = {
        key_id: decode_key(_SECTION, key_id, credentials.resolve(ref, tenant="").value) for key_id, ref in given.items()
    }
    public = {
        key_id: decode_key(_SECTION, key_id, ref.removeprefix(PUBLIC))
        for key_id, ref in references.items()
        if key_id not in given
    }
    return AnchorKeys(secret, newest=newest, public=public)
