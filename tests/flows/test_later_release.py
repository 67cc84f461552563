"""A later release computes fingerprints by another rule, and goes on with what this one froze."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.stage import Stage, action_of, pack_with
from protocol.examples import later_fingerprints
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Refused
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}


def upgraded(stage: Stage, home: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A process of the later release, over the same database and the same remote."""
    later_fingerprints(monkeypatch)
    return Stage(stage.engine, home, remote=stage.remote, credentials=stage.credentials, clock=stage.clock)


@pytest.mark.rule("D-43")
def test_a_rule_of_its_own_refuses_no_link_of_the_release_before(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, and a version that was wanted before the upgrade, are compared by the rule that they were written by."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    later = upgraded(stage, tmp_path, monkeypatch)
    later.drain()
    assert isinstance(later.save(1, name="Ada K."), Queued)
    later.drain()
    assert [json.loads(request.body)["name"] for request in stage.remote.sent] == ["Ada", "Ada L.", "Ada K."]
    assert later.link()["mapping_fingerprint"].startswith("mapping1:")
    later.linked(2, name="Grace", email="grace@example.com")
    assert later.link(2)["mapping_fingerprint"].startswith("mapping2:")


@pytest.mark.rule("D-43", "D-19")
def test_a_request_that_was_given_back_is_sent_under_the_rule_of_its_link(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the later release froze for an older link is not taken for another mapping's when it is tried again."""
    stage.linked(1, **ADA)
    later = upgraded(stage, tmp_path, monkeypatch)
    later.remote.script.next(verbs.answer(429))
    later.save(1, name="Ada L.")
    later.drain()
    stage.clock_forward()
    later.drain()
    assert [json.loads(request.body)["name"] for request in stage.remote.sent] == ["Ada", "Ada L.", "Ada L."]
    assert later.slot()["acknowledged_version"] == 2


@pytest.mark.rule("D-43", "DR-13")
def test_another_mapping_is_drift_under_either_rule(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule of a fingerprint excuses nothing: a mapping that did change refuses the update."""
    stage.linked(1, **ADA)
    later = upgraded(stage, tmp_path, monkeypatch)
    later.apply(pack_with(lambda pack: action_of(pack)["mappings"][0].update(target="/full_name")))
    refused = later.save(1, name="Ada L.")
    assert isinstance(refused, Refused)
    assert refused.code == Code.DRIFT
    assert "mapping" in str(refused.evidence)
