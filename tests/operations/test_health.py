"""Each check of `doctor` finds what it is for, says what to do, and leaves the rest of the checks running."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import Stage
from pushlink.errors import ConfigurationError, Finding, Unavailable
from pushlink.operations.health import CHECKS, Check, Subject, Verdict, examine
from pushlink.ports import StateSeen
from pushlink.store import schema
from pushlink.store.access import reading
from pushlink.store.dialect import library
from pushlink.testing import verbs
from pushlink.testing.messages import creating

ADA = {"name": "Ada", "email": "ada@example.com"}


@pytest.fixture
def subject(stage: Stage, tmp_path: Path) -> Subject:
    """A deployment with nothing wrong."""
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    return Subject(
        secret=secret.read_bytes,
        secret_file=secret,
        database=lambda: reading(stage.engine, check_schema=False),
        schema=lambda: schema.check(stage.engine),
        authority=lambda: "everybody",
        policy_findings=lambda _: (),
        read_objects=lambda _: ["Person"],
        credentials=lambda: stage.credentials,
        now=lambda: dt.datetime.now(dt.UTC),
        state=lambda: StateSeen(state_id="5" * 32, deployment_id=None, mark=0, confirmations=0),
    )


def found(subject: Subject) -> dict[str, Check]:
    return {check.name: check for check in examine(subject)}


def test_a_sound_deployment_passes_every_check_in_order(subject: Subject) -> None:
    """All of them ran, and all are fine; what the machine's SQLite library is has a test of its own."""
    checks = examine(subject)
    assert tuple(check.name for check in checks) == CHECKS
    assert {check.verdict for check in checks if check.name != "library"} == {Verdict.OK}


def test_a_sqlite_that_may_lose_commits_is_named_with_what_to_do(
    subject: Subject, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.51.2 is the last release with the WAL-reset bug; PostgreSQL is not asked for a SQLite version."""
    is_sqlite = engine.dialect.name == "sqlite"
    monkeypatch.setattr(library, "_SQLITE_VERSION", sa.text("SELECT '3.51.2'"))
    check = found(subject)["library"]
    assert check.verdict is (Verdict.WARN if is_sqlite else Verdict.OK)
    if is_sqlite:
        assert "3.51.2" in check.message
        assert "3.51.3" in (check.next_step or "")
    monkeypatch.setattr(library, "_SQLITE_VERSION", sa.text("SELECT '3.51.3'"))
    assert found(subject)["library"].verdict is Verdict.OK


@pytest.mark.rule("D-36")
def test_a_machine_that_would_not_notice_a_restore_is_warned(subject: Subject) -> None:
    """Without a state directory nothing is compared: no failure, and nothing that may be called fine."""
    check = found(replace(subject, state=lambda: None))["restore_guard"]
    assert check.verdict is Verdict.WARN
    assert "nobody notices" in check.message
    assert "state_directory" in (check.next_step or "")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_use_fails(subject: Subject, mode: int) -> None:
    """Owner only."""
    assert subject.secret_file is not None
    subject.secret_file.chmod(mode)
    check = found(subject)["secret"]
    assert check.verdict is Verdict.FAIL
    assert check.next_step == f"chmod 600 {subject.secret_file}"


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: object) -> Any:
        raise error

    return fail


def test_a_missing_secret_fails_and_credentials_are_left_out(subject: Subject) -> None:
    """What depends on the secret is not judged; everything else is."""
    checks = found(replace(subject, secret=raising(ConfigurationError("There is no secret.", next_step="init"))))
    assert (checks["secret"].verdict, checks["secret"].next_step) == (Verdict.FAIL, "init")
    assert "credentials" not in checks
    assert checks["waiting"].verdict is Verdict.OK


def test_a_database_that_is_away_ends_the_examination(subject: Subject) -> None:
    """One failed check, and none that would only say the same."""

    @contextmanager
    def away() -> Any:
        raise Unavailable("The database does not answer.")
        yield

    assert list(found(replace(subject, database=away))) == ["secret", "database"]


def test_missing_tables_fail_with_the_command_to_run(subject: Subject, stage: Stage) -> None:
    """An older revision is upgraded, a difference is looked at."""
    state = schema.check(stage.engine)
    older = found(replace(subject, schema=lambda: replace(state, current=None, pending=("0001", "0002"))))["schema"]
    assert (older.verdict, older.next_step) == (Verdict.FAIL, "pushlink db upgrade")
    torn = found(replace(subject, schema=lambda: replace(state, differences=("check x is missing",))))["schema"]
    assert (torn.verdict, torn.next_step) == (Verdict.FAIL, "pushlink db check")


@pytest.mark.rule("D-12")
def test_a_wrong_clock_of_the_machine_is_a_warning(subject: Subject) -> None:
    """The database's clock decides; people reading logs are warned."""
    check = found(replace(subject, now=lambda: dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)))["clock"]
    assert check.verdict is Verdict.WARN
    assert abs(float(str(check.evidence["difference_s"]))) > 290


def test_policy_findings_and_missing_objects_are_warnings(subject: Subject) -> None:
    """Both may be meant, and seldom are."""
    finding = Finding(file="policy.yaml", line=3, column=1, path="/roles", message="There is no source object X.")
    checks = found(replace(subject, policy_findings=lambda _: [finding], read_objects=lambda _: []))
    assert checks["authority"].verdict is Verdict.WARN
    assert "policy.yaml:3:1" in checks["authority"].message
    assert checks["objects"].verdict is Verdict.WARN


@pytest.mark.rule("D-34")
def test_a_credential_that_is_not_there_fails_by_its_reference(subject: Subject, stage: Stage) -> None:
    """The reference is named, and no value is ever asked for."""
    stage.credentials.current = None
    check = found(subject)["credentials"]
    assert check.verdict is Verdict.FAIL
    assert "env:PEOPLE_TOKEN" in check.message


@pytest.mark.rule("D-36")
def test_recovery_mode_fails_and_a_switched_off_worker_warns(subject: Subject, stage: Stage) -> None:
    """Nothing is sent in the one, and less than one may think in the other."""
    stage.sql("UPDATE pushlink_deployment SET general_worker = 'off'")
    assert found(subject)["deployment"].verdict is Verdict.WARN
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    assert found(subject)["deployment"].verdict is Verdict.FAIL


def test_no_pack_is_a_warning_and_an_unusable_action_a_failure(subject: Subject, stage: Stage) -> None:
    """An action whose profile is switched off cannot be used."""
    from flows.stage import pack_with, profile_of

    stage.apply(pack_with(lambda document: profile_of(document).update(active=False)))
    assert found(subject)["packs"].verdict is Verdict.FAIL
    stage.uninstall()
    assert found(subject)["packs"].verdict is Verdict.WARN


def test_what_waits_for_a_person_is_what_stuck_lists(subject: Subject, stage: Stage) -> None:
    """Of every tenant: a certificate that nobody trusts and a suspended link count; a child that waits does not."""
    stage.linked(2, **ADA)
    stage.sql("UPDATE pushlink_remote_link SET status = 'suspended_drift', reason_code = 'operator_decision'")
    stage.remote.script.next(verbs.untrusted_certificate(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    assert found(subject)["waiting"].evidence == {"retried/certificate_untrusted": 1, "suspended/operator_decision": 1}
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = 'association_waiting' WHERE status = 'pending'")
    assert found(subject)["waiting"].evidence == {"suspended/operator_decision": 1}


@pytest.mark.rule("D-39", "DL-09")
def test_rows_that_nobody_owns_are_counted(subject: Subject, stage: Stage) -> None:
    """Past their lease, of an unknown lane, parked: each is named with its number and the next step."""
    stage.remote.script.next(verbs.answer(422), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    stage.save(2, **ADA)
    stage.claim(1)
    stage.save(3, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow' WHERE status = 'pending'")
    stage.sql("UPDATE pushlink_push_attempt SET lease_until = '2001-01-01 00:00:00' WHERE status = 'processing'")
    checks = found(subject)
    assert checks["lanes"].evidence["unknown"] == {"tomorrow": 1}
    assert checks["leases"].evidence == {"configured/processing": 1}
    assert checks["waiting"].evidence == {"failed/remote_rejected": 1, "stranded": 1}
    assert checks["waiting"].next_step == "pushlink stuck"
    assert {checks[name].verdict for name in ("lanes", "leases", "waiting")} == {Verdict.WARN}
