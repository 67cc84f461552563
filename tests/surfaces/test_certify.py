"""`pushlink pack certify` over real sockets: a remote that honours its key, and one that takes it and ignores it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pushlink.testing import verbs
from pushlink.testing.collection import Dedupe
from pushlink.testing.messages import creating
from surfaces.certificates import certify, claiming, sandbox
from surfaces.conftest import Shop


def lost(shop: Shop, number: int) -> str:
    """A create whose answer is lost, and what its attempt is after the worker."""
    shop.remote.next(verbs.store_then_close(), when=creating)
    shop.note(number, f"title {number}")
    shop.run("save", "Note", number, "--user", "ann")
    shop.drain()
    shop.sql("UPDATE pushlink_push_attempt SET not_before = created_at WHERE status = 'pending'")  # no wait for it
    shop.drain()
    [attempt] = shop.json("attempts", "--object", "Note", "--id", number)["attempts"]
    return str(attempt["status"])


@pytest.mark.rule("C-091", "D-07")
def test_only_what_was_proved_is_relied_on(local_shop: Shop) -> None:
    """The same lost answer: parked before the certificate, asked for again after it, parked after a refusal."""
    shop = local_shop
    shop.remote.api.options = replace(shop.remote.api.options, dedupe=Dedupe())
    with sandbox(honours=True) as good, sandbox(honours=False) as bad:
        assert shop.run("pack", "apply", claiming(shop, good.base_url)).code == 0
        assert lost(shop, 1) == "ambiguous_remote_effect"
        done = certify(shop, good.base_url)["certified"]
        assert (done["passed"], done["problems"], done["classes"]) == (True, [], ["R1 key"])
        assert (good.creates, good.records) == (1, [])
        assert lost(shop, 2) == "finalized"
        refused = certify(shop, bad.base_url, code=1)["certified"]
        assert not refused["passed"]
        assert any("made a second record" in problem for problem in refused["problems"])
        assert (bad.creates >= 2, bad.records) == (True, [])
        assert lost(shop, 3) == "ambiguous_remote_effect"
    assert shop.remote.creates == 3
    assert set(shop.remote.creates_by(lambda record: record.created_by.header("Idempotency-Key")).values()) == {1}


def test_the_command_says_what_it_did(local_shop: Shop) -> None:
    """Each step, and until when it counts; without a sandbox nothing is tried."""
    shop = local_shop
    with sandbox(honours=True) as good:
        pack = claiming(shop, good.base_url)
        answer = shop.run("pack", "certify", pack, "--profile", "main", "--action", "push_note")
        assert answer.code == 0
        assert "the same bytes again: declared success (status 201), applied" in answer.out
        assert "Certified until" in answer.out
    without = shop.run("pack", "certify", shop.pack, "--profile", "main", "--action", "push_note")
    assert without.code == 2
    assert "nothing to certify" in without.err
