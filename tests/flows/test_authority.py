"""Authority over source values: what a user may not read is nowhere, and nothing is sent in somebody else's name."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import MakeStage, Stage, action_of, pack_with
from pushlink.adapters.policy import PolicyAuthority
from pushlink.adapters.policy_document import read_policy
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Refused, Reserved
from pushlink.testing import verbs

CANARY = "canary-salary-91823"
ADA = {"name": "Ada", "email": "ada@example.com", "salary": CANARY, "owner": "ann"}

POLICY = """
policy: 1
roles:
  everybody:
    objects:
      Person: {fields: [name, email], rows: all}
  owner:
    objects:
      Person: {fields: [name, email, salary], rows: own, owner_field: owner}
users:
  ann: {roles: [owner]}
  bob: {roles: [everybody]}
  eve: {roles: [owner]}
  gone: {roles: [everybody], active: false}
"""


def with_salary() -> dict[str, Any]:
    return pack_with(lambda d: action_of(d)["mappings"].append({"source": "salary", "target": "/salary"}))


@pytest.fixture
def policed(make_stage: MakeStage, tmp_path: Path) -> Stage:
    """A stage that pushes salaries, under a policy by which only a record's owner may read them."""
    from flows.stage import PERSON

    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    records = SqlRecordStore()
    records.bind(PERSON, "Person")
    return make_stage(pack=with_salary(), authority=PolicyAuthority(read_policy(file), records))


@pytest.mark.rule("AU-05", "AU-01", "GT-07")
@pytest.mark.parametrize("user", ["bob", "eve", "gone", "nobody"])
def test_a_denied_value_is_in_no_table_no_log_and_no_outcome(
    policed: Stage, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A field that is denied, a row that is denied, a user who left, a user whom nobody knows: the value is nowhere."""
    caplog.set_level(logging.DEBUG)
    policed.put(1, **ADA)
    outcome = policed.save(1, user=user)
    assert isinstance(outcome, Refused)
    expected = Code.READ_DENIED if user in {"bob", "eve"} else Code.AUTHORITY_UNAVAILABLE
    assert outcome.code is expected
    if user == "bob":
        assert outcome.evidence["denied_fields"] == ["salary"]
    policed.drain()
    for said in (policed.dump(), repr(outcome), caplog.text):
        assert CANARY not in said
        assert "ada@example.com" not in said
    assert policed.sends == 0


@pytest.mark.rule("AU-05")
def test_a_value_that_cannot_be_sent_is_not_in_its_refusal(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """An encoding that fails names the field; the text that it failed on stays where it was."""
    caplog.set_level(logging.DEBUG)
    encode = {"source": "salary", "target": "/salary", "encode": {"minor_units": 2}}
    stage = make_stage(pack=pack_with(lambda d: action_of(d)["mappings"].append(encode)))
    outcome = stage.save(1, **ADA)
    assert isinstance(outcome, Refused)
    assert CANARY not in repr(outcome)
    assert CANARY not in stage.dump()
    assert CANARY not in caplog.text


@pytest.mark.rule("AU-05")
def test_a_database_error_shows_no_value(policed: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a statement fails on, its parameters are in no message."""
    caplog.set_level(logging.DEBUG)
    policed.put(1, **ADA)
    policed.sql("ALTER TABLE pushlink_push_request RENAME TO pushlink_push_request_away")
    with pytest.raises(sa.exc.DBAPIError) as caught:
        policed.save(1, user="ann")
    assert CANARY not in str(caught.value)
    assert CANARY not in caplog.text


@pytest.mark.rule("AU-01", "AU-02")
def test_values_are_read_as_the_user_may_read_them_and_the_snapshot_says_which(policed: Stage) -> None:
    """The owner's save carries all three fields; who, what, when and under which policy is frozen beside them."""
    policed.put(1, **ADA)
    assert isinstance(policed.save(1, user="ann"), Reserved)
    authority = json.loads(policed.rows("push_request")[0]["authority"])["content"]
    assert authority["user_id"] == "ann"
    assert authority["allowed_fields"] == ["email", "name", "salary"]
    assert authority["policy_digest"] == policed.world.authority.policy_digest  # type: ignore[attr-defined]
    policed.drain()
    assert policed.remote.api.records[0].document["salary"] == CANARY


@pytest.mark.rule("AU-03", "PA-06", "DR-14")
def test_a_patch_needs_its_own_savers_permission_and_drops_no_field(policed: Stage) -> None:
    """Another user's save of a linked record is refused whole; the older wanted version stays as it is."""
    policed.put(1, **ADA)
    policed.save(1, user="ann")
    policed.drain()
    policed.save(1, name="Ada L.", user="ann")
    before = policed.slot()
    outcome = policed.save(1, name="by bob", user="bob")
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.wanted_version) == (Code.READ_DENIED, None)
    assert policed.slot() == before
    policed.drain()
    assert policed.remote.api.records[0].document["name"] == "Ada L."
    assert policed.link()["status"] == "finalized"


@pytest.mark.rule("D-19", "AU-03", "AU-05")
def test_a_refused_save_leaves_an_older_intent_as_its_author_wrote_it(policed: Stage) -> None:
    """While a create is in doubt: ann's intent waits, bob's and a deactivated user's are not merged into it."""
    policed.remote.script.next(verbs.store_then_close())
    policed.put(1, **ADA)
    policed.save(1, user="ann")
    policed.drain()
    policed.save(1, name="ann's", user="ann")
    wanted = policed.slot()["wanted_values"]
    for user in ("bob", "gone"):
        assert isinstance(policed.save(1, name=f"{user}'s", user=user), Refused)
    assert policed.slot()["wanted_values"] == wanted
    assert "ann's" in wanted


@pytest.mark.rule("AU-05", "AU-01")
def test_a_condition_on_a_field_that_the_user_may_not_read_tells_nothing(make_stage: MakeStage, tmp_path: Path) -> None:
    """Whether the condition holds would be told by the outcome: it is refused either way, and equally."""
    from flows.stage import PERSON

    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    records = SqlRecordStore()
    records.bind(PERSON, "Person")
    pack = pack_with(lambda d: action_of(d).update(when=[{"field": "salary", "equals": CANARY}]))
    stage = make_stage(pack=pack, authority=PolicyAuthority(read_policy(file), records))
    outcomes = []
    for number, salary in ((1, CANARY), (2, "other")):
        outcomes.append(stage.save(number, name="Ada", email="a@example.com", salary=salary, user="bob"))
    first, second = outcomes
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert (first.code, first.evidence) == (second.code, second.evidence)
    assert CANARY not in stage.dump().replace(json.dumps(CANARY), "", 1)  # the pack itself names its condition


@pytest.mark.rule("AU-05", "AT-05")
def test_a_value_of_a_condition_is_judged_and_never_frozen(make_stage: MakeStage) -> None:
    """What only decides whether an action concerns a record is in no snapshot."""
    stage = make_stage(pack=pack_with(lambda d: action_of(d).update(when=[{"field": "salary", "present": True}])))
    assert isinstance(stage.save(1, **ADA), Reserved)
    stage.drain()
    assert isinstance(stage.save(1, name="Ada L."), Queued)
    stage.drain()
    assert CANARY not in stage.dump()
