"""`pack certify`: try what a pack claims at the sandbox that it names, and keep the dated result.

A certificate is about one contract, by its digest: whatever changes in the `create` makes it another one. A failed
trial is kept as well, and counts from that moment on. Nothing is ever sent anywhere but to the sandbox.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

from pushlink.errors import CallerError
from pushlink.flows.world import World
from pushlink.operations.trials import Send, Trial, try_contract
from pushlink.packs.loader import load_pack
from pushlink.packs.model import Pack, PackAction
from pushlink.protocol.contracts import ProfileContract, Sandbox
from pushlink.protocol.replay import classes_of, contract_digest, has_contract
from pushlink.store.access import Connection
from pushlink.store.certificates import Certificate, insert_certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The result of one trial, as it is kept and shown."""

    pack: str
    profile: str
    action: str
    classes: tuple[str, ...]
    contract_digest: str
    remote: str
    passed: bool
    problems: tuple[str, ...]
    steps: tuple[str, ...]
    requests: int
    left_over: tuple[str, ...]
    certified_at: dt.datetime
    expires_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is to be tried: one action of a pack, and the place where that may be done."""

    pack: Pack
    action: PackAction
    profile_name: str
    sandboxed: ProfileContract


def read_claim(file: str | PathLike[str], *, profile: str, action: str) -> Claim:
    """The claim of a pack file; raises `CallerError` where there is no such action, no claim, or no sandbox."""
    pack = load_pack(file)
    found = [a for a in pack.actions() if a.names.action == action and a.names.profile == profile]
    if len(found) != 1:
        known = ", ".join(sorted(f"{a.names.action} ({a.names.profile})" for a in pack.actions()))
        raise CallerError(
            f"The pack has no action {action!r} that the profile {profile!r} reaches.",
            evidence={"actions": known},
            next_step=f"name one of: {known}",
        )
    if not has_contract(found[0].contract.create):
        raise CallerError(
            f"The create of {action!r} declares nothing to certify.",
            next_step="declare idempotency, repeat or lookup in the pack: see docs/packs.md",
        )
    sandbox = found[0].profile.sandbox
    if sandbox is None:
        raise CallerError(
            f"The profile {profile!r} names no sandbox, and a claim is never tried elsewhere.",
            next_step="write sandbox: {base_url: ...} into the profile",
        )
    return Claim(pack=pack, action=found[0], profile_name=profile, sandboxed=sandboxed(found[0].profile, sandbox))


def sandboxed(profile: ProfileContract, sandbox: Sandbox) -> ProfileContract:
    """The profile as it reaches the sandbox: another address, another credential, other values of its variables."""
    return profile.model_copy(
        update={
            "base_url": sandbox.base_url,
            "credential_ref": sandbox.credential_ref if sandbox.credential_ref is not None else profile.credential_ref,
            "variables": {**profile.variables, **sandbox.variables},
        }
    )


def try_claim(
    claim: Claim,
    world: World,
    *,
    tenant: str,
    send: Send,
    at: dt.datetime,
    wait: Callable[[float], None] = time.sleep,
) -> Trial:
    """Make the trial, with no transaction open; its key and its texts are random, so that no attempt has them."""
    token = world.ids.token()
    return try_contract(
        claim.action,
        claim.sandboxed,
        tenant=tenant,
        key=str(uuid.UUID(hex=token)),
        nonce=f"n{world.ids.token()[:15]}",  # digits alone, or 1e5, are a number to a remote that guesses types
        send=send,
        wait=wait,
        at=at,
    )


def keep_result(
    conn: Connection, claim: Claim, trial: Trial, *, actor: str, valid_for_ms: int, now: dt.datetime
) -> Certified:
    """Keep the result; the newest one of a contract decides whether it is relied on."""
    create = claim.action.contract.create
    done = Certified(
        pack=f"{claim.pack.pack} {claim.pack.version}",
        profile=claim.profile_name,
        action=claim.action.names.action,
        classes=classes_of(create),
        contract_digest=contract_digest(create),
        remote=claim.sandboxed.base_url,
        passed=trial.is_passed,
        problems=trial.problems,
        steps=trial.steps,
        requests=trial.requests,
        left_over=trial.left_over,
        certified_at=now,
        expires_at=now + dt.timedelta(milliseconds=valid_for_ms),
    )
    insert_certificate(
        conn,
        Certificate(
            contract_digest=contract_digest(create),
            pack=done.pack,
            profile=done.profile,
            action=done.action,
            classes=done.classes,
            remote=done.remote,
            passed=done.passed,
            evidence={
                "problems": list(done.problems),
                "steps": list(done.steps),
                "requests": done.requests,
                "left_over": list(done.left_over),
            },
            actor=actor,
            certified_at=now,
            expires_at=done.expires_at,
        ),
    )
    return done
