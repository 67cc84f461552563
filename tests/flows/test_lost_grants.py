"""A grant that is lost parks its profile: everything that needs it waits, nothing is sent, no retry is counted."""

from __future__ import annotations

import pytest

from flows.stage import MakeStage, MemoryCredentials, pack_with, profile_of
from pushlink.ports import WireError, WireReply, WireRequest, WireTrace
from pushlink.protocol.states import AttemptStatus, Hold
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.scripted import ScriptedTransport


class WithoutGrant(ScriptedTransport):
    """A way to the remote whose access token cannot be had, until somebody brings another grant."""

    asked = 0
    lost = True

    def send_now(self, request: WireRequest) -> WireReply:
        if not self.lost:
            return super().send_now(request)
        self.asked += 1
        return WireReply(trace=WireTrace(), error=WireError.CREDENTIAL, error_text="the grant cannot be used")


@pytest.mark.rule("D-05", "DR-11")
def test_a_lost_grant_holds_the_profile_and_another_one_lets_it_go_on(make_stage: MakeStage) -> None:
    """One try finds out; its attempt and the next one are held, and another generation that is waived heals both."""
    credentials = MemoryCredentials()
    remote = WithoutGrant(RemoteOptions(prefix="/v2"), credentials=credentials)
    pack = pack_with(lambda d: profile_of(d).update(waives={"credential_generation": True}))
    stage = make_stage(pack=pack, remote=remote, credentials=credentials)
    stage.save(1, name="Ann", email="a@example.com")
    stage.save(2, name="Bob", email="b@example.com")
    stage.run(stage.claim(1))
    stage.clock_forward()
    stage.drain()
    assert remote.asked == 1
    held = stage.attempts()
    assert {(row["status"], row["hold_code"]) for row in held} == {(AttemptStatus.PENDING, Hold.CREDENTIAL)}
    assert {(row["retry_count"], row["in_doubt"]) for row in held} == {(0, False)}
    assert [row["status"] for row in stage.rows("credential_state")] == ["refused"]
    remote.lost, credentials.current = False, "generation-2"
    stage.clock_forward()
    stage.drain()
    assert {row["status"] for row in stage.attempts()} == {AttemptStatus.FINALIZED}
