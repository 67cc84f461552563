"""What is sealed opens for its own row with its own key, and for nothing else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.adapters.vault import OVERHEAD_BYTES, KeyVault, vault_of
from pushlink.errors import ConfigurationError
from pushlink.protocol.sealing import Plain, Unread, reply_binding, request_binding, wanted_binding

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
ROW, OTHER = request_binding("a1", 1), request_binding("a2", 1)


def vault(**options: bool) -> KeyVault:
    return KeyVault({"old": OLD, "new": NEW}, newest="new", **options)


@given(st.binary(max_size=2_000))
@settings(max_examples=200)
def test_what_is_sealed_opens_again(content: bytes) -> None:
    """For its own row; the envelope holds the content nowhere, and is never the same twice."""
    one, two = vault().seal(content, ROW), vault().seal(content, ROW)
    assert vault().open(one.content, one.key, ROW) == content
    assert one.key == "new"
    assert one.content != two.content
    assert len(one.content) == len(content) + OVERHEAD_BYTES
    assert len(content) < 4 or content not in one.content


def test_another_row_does_not_open_it() -> None:
    """A database editor who moves an envelope moves nothing that can be read."""
    bindings = [
        ROW,
        OTHER,
        request_binding("a1", 2),
        request_binding("a11", 1),
        reply_binding("a1", "t", 1),
        reply_binding("a1", "t1", 1),
        reply_binding("a1", "t", 2),
        wanted_binding("", "Note", "1", "m"),
        wanted_binding("", "Note", "11", "m"),
        wanted_binding("N", "ote", "1", "m"),
        wanted_binding("", "Note", "1", "n"),
    ]
    assert len(set(bindings)) == len(bindings)
    for binding in bindings:
        sealed = vault().seal(b"content", binding)
        opened = [b for b in bindings if vault().open(sealed.content, sealed.key, b) == b"content"]
        assert opened == [binding]
        refused = {vault().open(sealed.content, sealed.key, b) for b in bindings if b != binding}
        assert refused == {Unread.NOT_OPENED}


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    """Wherever it is: format, salt, nonce, text or tag."""
    sealed = vault().seal(b"a body of a request", ROW)
    for place in range(len(sealed.content)):
        for bit in range(8):
            damaged = bytearray(sealed.content)
            damaged[place] ^= 1 << bit
            assert vault().open(bytes(damaged), sealed.key, ROW) is Unread.NOT_OPENED
        assert vault().open(sealed.content[:place], sealed.key, ROW) is Unread.NOT_OPENED
    assert vault().open(sealed.content + b"\x00", sealed.key, ROW) is Unread.NOT_OPENED


def test_the_newest_key_seals_and_all_open() -> None:
    """What the old key sealed opens beside the new one, under its own id alone, and is missed without it."""
    sealed = KeyVault({"old": OLD}, newest="old").seal(b"content", ROW)
    assert vault().open(sealed.content, "old", ROW) == b"content"
    assert vault().open(sealed.content, "new", ROW) is Unread.NOT_OPENED
    assert KeyVault({"new": NEW}, newest="new").open(sealed.content, "old", ROW) is Unread.KEY_MISSING
    assert KeyVault({"new": OLD}, newest="new").open(sealed.content, "new", ROW) is Unread.NOT_OPENED
    assert Plain().open(sealed.content, "old", ROW) is Unread.KEY_MISSING


def test_a_plain_content_is_read_until_that_is_switched_off() -> None:
    """Rows of before the keys are plain; once everything is sealed, a plain one is somebody's work."""
    assert vault().open(b"content", None, ROW) == b"content"
    assert vault(required=True).open(b"content", None, ROW) is Unread.NOT_SEALED
    assert Plain().open(b"content", None, ROW) == b"content"
    assert Plain().seal(b"content", ROW).key is None


def test_keys_come_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base64 or hexadecimal, from a variable or a file, which nobody else may read; no text shows one."""
    monkeypatch.setenv("KEY_OLD", base64.b64encode(OLD).decode())
    file = tmp_path / "new.key"
    file.write_text(NEW.hex() + "\n")
    file.chmod(0o600)
    credentials = EnvironmentFileCredentials(b"secret")
    made = vault_of({"old": "env:KEY_OLD", "new": f"file:{file}"}, credentials, newest="new", required=False)
    sealed = vault().seal(b"content", ROW)
    assert made.open(sealed.content, sealed.key, ROW) == b"content"
    assert "new" in repr(made)
    assert NEW.hex() not in repr(made)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="everybody"):
        vault_of({"new": f"file:{file}"}, EnvironmentFileCredentials(b"s"), newest="new", required=False)


@pytest.mark.parametrize(
    "text", ["short", base64.b64encode(b"x" * 31).decode(), "g" * 64, base64.b64encode(b"x" * 33).decode()]
)
def test_a_key_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """With its id and what to do, and without its text."""
    monkeypatch.setenv("KEY", text)
    with pytest.raises(ConfigurationError, match="32 bytes") as caught:
        vault_of({"k1": "env:KEY"}, EnvironmentFileCredentials(b"s"), newest="k1", required=False)
    assert "k1" in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(("keys", "newest"), [({"k": OLD}, "other"), ({"bad id": OLD}, "bad id"), ({"": OLD}, "")])
def test_a_key_needs_an_id(keys: dict[str, bytes], newest: str) -> None:
    """And the one that seals is among them."""
    with pytest.raises(ConfigurationError):
        KeyVault(keys, newest=newest)
