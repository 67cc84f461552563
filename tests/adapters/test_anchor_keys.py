"""Keys of anchors: what signs, what only checks, and what the settings are told when a key cannot be used."""

from __future__ import annotations

import base64

import pytest
from pydantic import ValidationError

from pushlink.adapters.anchor_keys import AnchorKeys, anchor_keys_of
from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.errors import Code, ConfigurationError
from pushlink.settings import AuditSettings

SEED = b"s" * 32


def places(**environment: str) -> EnvironmentFileCredentials:
    return EnvironmentFileCredentials(b"a secret", environment=environment)


def test_keys_come_from_the_places_that_the_settings_name() -> None:
    """Base64 or hexadecimal; what one machine signs the public half on another one believes."""
    keys = anchor_keys_of(
        {"a": "env:A", "b": "env:B"},
        places(A=base64.b64encode(SEED).decode(), B=SEED.hex()),
        newest="a",
    )
    key, signature = keys.sign(b"content")
    assert keys.refuses(b"content", key, signature) is None
    assert keys.refuses(b"content", "b", signature) is None  # the same key under another id
    public = anchor_keys_of(keys.public_keys(), places(), newest=None)
    assert public.refuses(b"content", key, signature) is None
    assert public.refuses(b"other", key, signature) == "its signature does not hold"
    with pytest.raises(ConfigurationError, match="No key"):
        public.sign(b"content")


def test_no_other_signature_of_the_same_key_is_one_of_an_anchor() -> None:
    """What is signed begins with its purpose."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    other = base64.b64encode(Ed25519PrivateKey.from_private_bytes(SEED).sign(b"content")).decode()
    assert AnchorKeys({"a": SEED}, newest="a").refuses(b"content", "a", other) == "its signature does not hold"


@pytest.mark.parametrize(
    ("references", "newest"),
    [
        ({"a": "env:SHORT"}, "a"),
        ({"a": "public:AAAA"}, None),
        ({"no id": "env:GOOD"}, None),
        ({"a": "public:" + base64.b64encode(SEED).decode()}, "a"),
    ],
)
def test_a_key_that_cannot_be_used_is_named_and_never_shown(references: dict[str, str], newest: str | None) -> None:
    """By its id alone."""
    with pytest.raises(ConfigurationError) as caught:
        anchor_keys_of(references, places(SHORT="AAAA", GOOD=SEED.hex()), newest=newest)
    assert caught.value.code is Code.SETTINGS_INVALID
    assert "AAAA" not in str(caught.value)
    assert SEED.hex() not in repr(caught.value)


def test_the_one_that_signs_is_one_of_the_keys() -> None:
    """And a `repr` shows no secret."""
    with pytest.raises(ValidationError, match="sign_with is one of keys"):
        AuditSettings(keys={"a": "env:A"}, sign_with="b")
    assert SEED.hex() not in repr(AnchorKeys({"a": SEED}, newest="a"))
