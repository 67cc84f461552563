"""Who decides: tokens, roles, and the local administrator of a deployment that has no principals yet."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from flows.stage import Stage
from operations.operators import actions
from pushlink.errors import CallerError, Code
from pushlink.operations import principals
from pushlink.operations.principals import Added, Identity, Role

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
