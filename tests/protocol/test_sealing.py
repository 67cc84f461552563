"""What a sealed content is bound to, and a deployment without keys."""

from __future__ import annotations

from pushlink.protocol.sealing import Plain, Sealed, Unread, reply_binding, request_binding, wanted_binding


def test_a_binding_is_the_parts_each_with_its_length_in_front() -> None:
    """Pinned: what was sealed under it is opened under no other."""
    head = b"\0\0\0\x12pushlink.sealed.v1\0\0\0\x0cpush_request\0\0\0\x04body"
    assert request_binding("a-1", 2) == head + b"\0\0\0\x03a-1\0\0\0\x012"


def test_no_two_rows_share_a_binding_wherever_the_borders_of_their_parts_lie() -> None:
    bindings = {
        request_binding("a", 12),
        request_binding("a1", 2),
        reply_binding("a", "1", 2),
        reply_binding("a1", "", 2),
        wanted_binding("t", "Thing", "1", "f"),
        wanted_binding("", "tThing", "1", "f"),
    }
    assert len(bindings) == 6


def test_a_deployment_without_keys_seals_nothing_and_opens_nothing_that_is_sealed() -> None:
    vault = Plain()
    assert vault.seal(b"x", b"b") == Sealed(b"x", None)
    assert vault.open(b"x", None, b"b") == b"x"
    assert vault.open(b"x", "key-1", b"b") is Unread.KEY_MISSING
    assert vault.newest is None
