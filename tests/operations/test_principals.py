"""Who decides: tokens, roles, and the local administrator of a deployment that has no principals yet."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from flows.stage import Stage
from operations.operators import actions
from pushlink.errors import CallerError, Code
from pushlink.operations import principals
from pushlink.operations.principals import Added, Identity, Role, TokenRefused

ADMIN = Identity(name="local:root", role=Role.ADMIN)


def identify(stage: Stage, token: str | None) -> Identity:
    with stage.engine.begin() as conn:
        return principals.identify(conn, token, local_user="olga", now=stage.clock.now(conn))


def add(stage: Stage, name: str, role: Role = Role.ADMIN, *, by: Identity = ADMIN, **more: Any) -> Added:
    given = {"tenant": None, "lasts": None, **more}
    with stage.engine.begin() as conn:
        return principals.add(
            conn,
            by,
            name=name,
            role=role,
            reason="a test",
            ids=stage.world.ids.fresh,
            now=stage.clock.now(conn),
            **given,
        )


def revoke(stage: Stage, name: str) -> None:
    with stage.engine.begin() as conn:
        principals.revoke(conn, ADMIN, name=name, reason="a test", now=stage.clock.now(conn))


@pytest.mark.rule("SY-03")
def test_without_principals_the_local_user_decides_and_with_one_a_token_is_needed(stage: Stage) -> None:
    """The first principal ends the time without tokens, so it is an administrator."""
    assert identify(stage, None) == Identity(name="local:olga", role=Role.ADMIN)
    with pytest.raises(CallerError, match="first principal"):
        add(stage, "peter", Role.OPERATOR)
    token = add(stage, "root").token
    assert identify(stage, token) == Identity(name="root", role=Role.ADMIN)
    with pytest.raises(CallerError) as caught:
        identify(stage, None)
    assert caught.value.code is Code.TOKEN_REFUSED


@pytest.mark.rule("SY-03")
def test_every_unusable_token_is_refused_alike(stage: Stage) -> None:
    """Wrong, cut, of nobody, expired, revoked, empty, huge, with a line break: one sentence, nothing is learned."""
    add(stage, "root")
    good = add(stage, "peter", Role.OPERATOR).token
    expired = add(stage, "eve", Role.OPERATOR, lasts=dt.timedelta(hours=1)).token
    revoked = add(stage, "mallory", Role.OPERATOR).token
    revoke(stage, "mallory")
    stage.fixed.advance(hours=1)
    said = set()
    for token in (
        good[:-1],
        good + "x",
        "pushlink_nobody_x",
        expired,
        revoked,
        "",
        "x" * 10_000,
        good + "\r\n",
        "\ud800",
    ):
        with pytest.raises(CallerError) as caught:
            identify(stage, token)
        said.add((caught.value.code, caught.value.message))
    assert len(said) == 1
    assert identify(stage, good).name == "peter"


def told(stage: Stage, token: str | None) -> TokenRefused:
    """A refused token, and what a surface does with it."""
    with pytest.raises(TokenRefused) as caught:
        identify(stage, token)
    with stage.engine.begin() as conn:
        principals.record_refusal(conn, caught.value, local_user="eve", now=stage.clock.now(conn))
    return caught.value


@pytest.mark.rule("SY-03")
def test_every_refused_token_is_one_row_of_the_audit_that_says_why(stage: Stage) -> None:
    """Whose it would have been, who came with it and what was wrong; nothing of the token itself."""
    add(stage, "root")
    peter = add(stage, "peter", Role.OPERATOR)
    ended = add(stage, "eve", Role.OPERATOR, lasts=dt.timedelta(hours=1))
    mallory = add(stage, "mallory", Role.OPERATOR)
    revoke(stage, "mallory")
    stage.fixed.advance(hours=1)
    before = len(actions(stage))
    expected = [
        (None, "", "there was none"),
        (peter.token[:-1], peter.principal.id, "it is wrong"),
        ("pushlink_nobody_x", "", "it is nobody's"),
        (ended.token, ended.principal.id, "it has expired"),
        (mallory.token, mallory.principal.id, "its principal is revoked"),
        ("x" * 10_000, "", "it is nobody's"),
        (peter.token + "\r\n", peter.principal.id, "it is wrong"),
    ]
    for token, _, _ in expected:
        told(stage, token)
    rows = actions(stage)[before:]
    assert [(row["target_id"], row["reason"]) for row in rows] == [
        (principal_id, f"the token was refused: {because}") for _, principal_id, because in expected
    ]
    assert {(row["verb"], row["actor"], row["target_kind"]) for row in rows} == {
        ("token refused", "local:eve", "principal")
    }
    assert peter.token.split("_", 2)[2][:-1] not in stage.dump()


@pytest.mark.rule("SY-03")
def test_ten_refused_tokens_within_a_minute_lock_a_principal_out(stage: Stage) -> None:
    """Its right token is refused as well, in the same words, until the minute is over; another's is not."""
    root, peter = add(stage, "root").token, add(stage, "peter", Role.OPERATOR).token
    for _ in range(9):
        told(stage, peter[:-1])
    assert identify(stage, peter).name == "peter"
    said = told(stage, peter[:-1]).message
    locked = told(stage, peter)
    assert locked.message == said
    assert "too many" in locked.because
    assert identify(stage, root).name == "root"
    stage.fixed.advance(seconds=59)
    told(stage, peter)
    stage.fixed.advance(seconds=1)
    assert identify(stage, peter).name == "peter"
    told(stage, peter[:-1])
    assert identify(stage, peter).name == "peter"


def test_no_token_is_stored_and_each_is_another(stage: Stage) -> None:
    """Only a digest is in the database, and nothing of a token is in the audit."""
    tokens = [add(stage, name).token for name in ("root", "other")]
    assert len(set(tokens)) == 2
    text = stage.dump()
    assert all(token.split("_", 2)[2] not in text for token in tokens)
    assert [row["verb"] for row in actions(stage)] == ["principal add", "principal add"]


@pytest.mark.rule("SY-03", "D-40")
def test_roles_include_the_ones_before_them_and_a_scope_is_kept(stage: Stage) -> None:
    """A viewer decides nothing, an operator defines nobody, and nobody acts for another tenant."""
    for have, need in ((have, need) for have in Role for need in Role):
        identity = Identity(name="x", role=have)
        if list(Role).index(have) >= list(Role).index(need):
            assert identity.require(need, tenant="") is identity
            continue
        with pytest.raises(CallerError) as caught:
            identity.require(need, tenant="")
        assert caught.value.code is Code.NOT_PERMITTED
    scoped = Identity(name="x", role=Role.ADMIN, tenant="north")
    assert scoped.require(Role.OPERATOR, tenant="north") is scoped
    for tenant in ("", "south", None):
        with pytest.raises(CallerError):
            scoped.require(Role.VIEWER, tenant=tenant)
    with pytest.raises(CallerError):
        add(stage, "root", by=Identity(name="x", role=Role.APPROVER))


def test_the_last_administrator_stays_and_a_name_is_never_given_twice(stage: Stage) -> None:
    """Otherwise nobody could define another one, and the audit would name two people alike."""
    add(stage, "root")
    with pytest.raises(CallerError, match="last administrator"):
        revoke(stage, "root")
    add(stage, "second")
    revoke(stage, "root")
    for name in ("root", "second", "local:x", " "):
        with pytest.raises(CallerError):
            add(stage, name)
    with pytest.raises(CallerError, match="already"):
        revoke(stage, "root")
    with pytest.raises(CallerError, match="no principal"):
        revoke(stage, "nobody")
    with stage.engine.begin() as conn:
        assert [one.name for one in principals.list_all(conn)] == ["root", "second"]
