"""The commands of docs/operations.md do what its sections say, as they stand there."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pushlink.protocol.snapshots import digest_bytes
from pushlink.store.dialect import create_engine
from pushlink.store.tables import push_response
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating
from surfaces import certificates, decisions, keeping
from surfaces.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
NOTE = 42

#: What a create declares that may be repeated by a key and found by its stamp.
CONTRACT = """\
          idempotency: {name: Idempotency-Key, lifetime: 1h}
          stamp: {format: token}
          body: {merge: {"/ref": "{stamp}"}}
          lookup:
            path: /notes
            query: {ref: "{stamp}"}
            items: /records
            match: /ref
            id: [{from: $response.body#/id}]
            every: 1h
            timeout: 2h
"""

#: Who was named to agree and may not, and what they would have to be.
TWO_WRONG_APPROVERS = [("olga", "approver"), ("vera", "approver")]

#: Longer than the settle time of the sample pack.
AN_HOUR_AGO = "2020-01-01 00:00:00+00:00"


def blocks(heading: str) -> list[list[str]]:
    """The commands of each console block of a section."""
    [section] = [part for part in PAGE.split("\n## ") if part.splitlines()[0].startswith(heading)]
    found = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [[line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")] for block in found]


def type_all(shop: Shop, lines: list[str], **names: str) -> None:
    """Type commands with the ids and the row versions of now in the places of the page's words."""
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "pushlink"
        target = next((word for word in words if word in {"ATTEMPT", "LINK"}), None)
        find = decisions.link_of if target == "LINK" else decisions.attempt_of
        row = find(shop, int(names.get("link_of", NOTE)) if target == "LINK" else NOTE) if target else {}
        given = {
            "ATTEMPT": row.get("id"),
            "LINK": row.get("id"),
            "N": row.get("row_version"),
            "ID": names.get("remote_id"),
        }
        typed = [str(given.get(word) or word) for word in words[1:]]
        answer = shop.run(*typed)
        assert answer.code == 0, (line, answer)


def absent(shop: Shop) -> None:
    """A create that never arrived, long ago."""
    shop.remote.next(verbs.close_after_read(), when=creating)
    decisions.saved(shop, NOTE)
    shop.drain()
    shop.sql("UPDATE pushlink_push_attempt SET last_checkpoint_at = :then", then=AN_HOUR_AGO)


def lost_update(shop: Shop) -> None:
    decisions.linked(shop, NOTE)
    shop.remote.next(verbs.store_then_close(), when=updating)
    decisions.changed(shop, NOTE, "another title")
    shop.drain()
    shop.sql("UPDATE pushlink_push_attempt SET last_checkpoint_at = :then", then=AN_HOUR_AGO)


def gone(shop: Shop) -> None:
    """A link whose remote record is not the one that it was."""
    decisions.linked(shop, NOTE)
    shop.remote.next(verbs.answer(409), when=updating)
    decisions.changed(shop, NOTE, "another title")
    shop.drain()
    assert decisions.link_of(shop, NOTE)["status"] == "suspended_drift"


def drifted(shop: Shop, *, is_linked: bool) -> None:
    """The pack names another credential than the one that was frozen."""
    decisions.linked(shop, NOTE) if is_linked else decisions.saved(shop, NOTE)
    if is_linked:
        decisions.changed(shop, NOTE, "another title")
    shop.variables["OTHER_TOKEN"] = shop.variables["NOTES_TOKEN"]
    shop.pack.write_text(shop.pack.read_text().replace("env:NOTES_TOKEN", "env:OTHER_TOKEN"))
    assert shop.run("pack", "apply", shop.pack).code == 0
    shop.drain()
    assert decisions.attempt_of(shop, NOTE)["hold"] == "drift"


def conflicting(shop: Shop) -> None:
    decisions.conflict(shop, NOTE, decisions.linked(shop, 1))


def unreadable(shop: Shop, *, back: bool) -> None:
    """A create that a worker met without the key."""
    keeping.keyed(shop, "k1")
    decisions.saved(shop, NOTE)
    keeping.keyed(shop, "k2")
    shop.drain()
    assert decisions.attempt_of(shop, NOTE)["hold"] == "body_unreadable"
    if back:
        keeping.keyed(shop, "k1", "k2")


def answered_late(shop: Shop) -> None:
    """A create in doubt, and an answer to it that was stored after its claim was lost."""
    decisions.doubtful(shop, NOTE)
    body = json.dumps({"id": shop.remote.records[-1].id}).encode()
    answer = {
        "attempt_id": decisions.attempt_of(shop, NOTE)["id"],
        "claim_token": "of before",
        "send_ordinal": 1,
        "link_key": decisions.attempt_of(shop, NOTE)["link_key"],
        "received_at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "status": 201,
        "headers": "[]",
        "body": body,
        "body_size": len(body),
        "body_complete": True,
        "body_digest": digest_bytes(body),
        "trace": json.dumps({"error": None, "error_text": "", "request_started": True, "request_sent": True}),
        "late": True,
        "candidate_id": None,
        "verdict": json.dumps(
            {"effect": "applied", "disposition": "finalize", "code": None, "row": "x", "candidates": []}
        ),
    }
    engine = create_engine(shop.database_url)
    with engine.begin() as conn:
        conn.execute(push_response.insert(), answer)
    engine.dispose()


def contracted(shop: Shop) -> None:
    """A create in doubt whose pack repeats it by a key and finds it by a stamp, its only try used up."""
    shop.config.write_text(shop.config.read_text() + "\n[contracts]\ntrust_uncertified = true\n")
    text = shop.pack.read_text().replace("          path: /notes\n", f"          path: /notes\n{CONTRACT}")
    text = text.replace("    auth: {kind: bearer}\n", "    auth: {kind: bearer}\n    retry: {attempts: 1}\n")
    shop.pack.write_text(text)
    assert shop.run("pack", "apply", shop.pack).code == 0
    decisions.doubtful(shop, NOTE)


def source_is_back(shop: Shop) -> None:
    decisions.saved(shop, NOTE)
    shop.sql("DELETE FROM note WHERE id = :id", id=NOTE)
    shop.drain()
    shop.note(NOTE, "put back")
    assert decisions.attempt_of(shop, NOTE)["reason"] == "source_gone"


def stale(shop: Shop) -> None:
    decisions.linked(shop, NOTE)
    shop.sql("UPDATE pushlink_push_slot SET wanted_state = 'stale_mapping'")
    shop.sql("UPDATE note SET title = 'newer'")
    assert shop.json("explain", "Note", NOTE)["actions"][0]["state"] == "stale"


def no_id(shop: Shop) -> None:
    shop.remote.next(verbs.answer(201, {"ok": True}), when=creating)
    decisions.saved(shop, NOTE)
    shop.drain()
    assert decisions.attempt_of(shop, NOTE)["reason"] == "applied_unidentified"


def abandoned(shop: Shop) -> None:
    decisions.decided(shop, "abandon", decisions.held(shop, NOTE))


def unknown_lane(shop: Shop) -> None:
    decisions.saved(shop, NOTE)
    shop.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'of_tomorrow'")


def untrusted(shop: Shop) -> None:
    """What is tried again by itself, and in vain until the authority was named; here it is by now."""
    decisions.saved(shop, NOTE)
    shop.sql("UPDATE pushlink_push_attempt SET reason_code = 'certificate_untrusted'")
    assert [group["cause"] for group in shop.json("stuck")["groups"]] == ["retried/certificate_untrusted"]


def held(hold: str) -> Callable[[Shop], Any]:
    return lambda shop: decisions.held(shop, NOTE, hold)


#: Section, which of its blocks, how the case comes about, what is named, and the attempt and link afterwards.
CASES: dict[str, tuple[str, int, Callable[[Shop], Any], dict[str, str], str | None, str | None]] = {
    "adopt": ("`effect_unknown`", 0, lambda s: decisions.doubtful(s, NOTE), {}, "finalized", "finalized"),
    "absent": ("`effect_unknown`", 1, absent, {}, "finalized", "finalized"),
    "applied": ("`effect_unknown`", 3, lost_update, {}, "finalized", "finalized"),
    "resend": ("`effect_unknown`", 4, lost_update, {}, "pending", "finalized"),
    "reinterpreted": ("`effect_unknown`", 2, answered_late, {}, "writeback_pending", None),
    "by contract": ("`replay_expired`", 0, contracted, {}, "pending", None),
    "no id in the answer": ("`applied_unidentified`", 0, no_id, {"remote_id": "6001"}, "writeback_pending", None),
    "abandoned": ("`abandoned`", 0, abandoned, {}, "pending", None),
    "expired, wanted": ("`expired`", 0, held("expired"), {}, "pending", None),
    "credential": ("`credential`", 0, held("credential"), {}, "pending", None),
    "certificate": ("A certificate", 0, untrusted, {}, "finalized", "finalized"),
    "association blocked": ("`association_waiting`", 0, held("association_blocked"), {}, "terminal_failed", None),
    "association gone": ("`association_waiting`", 1, abandoned, {}, "superseded", None),
    "association settled": ("`association_waiting`", 2, held("association_waiting"), {}, "pending", None),
    "stopped": ("`remote_gone`", 3, lambda s: decisions.linked(s, NOTE), {}, "finalized", "suspended_drift"),
    "lane": ("A lane", 0, unknown_lane, {}, "pending", None),
    "stale": ("`stale_mapping`", 0, stale, {}, "finalized", "finalized"),
    "source back": ("`source_gone`", 0, source_is_back, {}, "finalized", "finalized"),
    "rejected": ("`remote_rejected`", 0, lambda s: decisions.failed(s, NOTE), {}, "finalized", "finalized"),
    "duplicate": (
        "`remote_conflict`",
        0,
        lambda s: decisions.failed(s, NOTE, verbs.answer(409, {"id": "6001"})),
        {"remote_id": "6001"},
        "pending",  # its next update: nothing has that id at the remote of this test
        "finalized",
    ),
    "conflict, disposed": ("`locator_conflict`", 0, conflicting, {}, "terminal_failed", None),
    "conflict, retired": ("`locator_conflict`", 1, conflicting, {"link_of": "1"}, "finalized", "finalized"),
    "drifted link": ("`drift`", 0, lambda s: drifted(s, is_linked=True), {}, "finalized", "finalized"),
    "drifted create": ("`drift`", 1, lambda s: drifted(s, is_linked=False), {}, "finalized", "finalized"),
    "poison": ("`poison`", 0, lambda s: decisions.held(s, NOTE), {}, "finalized", "finalized"),
    "unreadable, key back": ("`body_unreadable`", 0, lambda s: unreadable(s, back=True), {}, "finalized", "finalized"),
    "unreadable, key lost": ("`body_unreadable`", 1, lambda s: unreadable(s, back=False), {}, "finalized", "finalized"),
    "expired": ("`expired`", 1, lambda s: decisions.held(s, NOTE, "expired"), {}, "terminal_failed", None),
    "suspended, back": ("`remote_gone`", 0, gone, {}, "pending", "finalized"),
    "suspended, moved": ("`remote_gone`", 1, gone, {"remote_id": "7002"}, "pending", "finalized"),
    "suspended, over": ("`remote_gone`", 2, gone, {}, "terminal_failed", "retired"),
    "refused values": ("Refused values", 0, lambda s: decisions.refused_update(s, NOTE), {}, "finalized", "finalized"),
}


#: Blocks that tests of their own type, here or in the named module.
TYPED_ELSEWHERE: dict[tuple[str, int], str] = {
    ("Looking", 0): "test_the_commands_that_only_look_are_answered",
    ("Looking", 1): "test_the_commands_that_only_look_are_answered",
    ("Deciding", 0): "test_the_commands_that_only_look_are_answered",
    ("Many at once", 0): "test_a_file_made_as_the_page_says_is_tried_and_done",
    ("Who may decide", 0): "test_the_same_decisions_are_refused_without_a_token_once_principals_are_defined",
    ("The audit", 0): "test_the_audit_is_held_against_its_chain_and_anchors",
    ("Keeping the database", 0): "test_the_database_is_kept_by_the_commands_of_its_section",
    ("`drift`", 2): "test_a_blocked_record_is_created_again_by_the_commands_of_its_section",
    ("`link_retired`", 0): "test_a_retired_record_is_created_again_by_the_command_of_its_section",
    ("`lineage_unresolved`", 0): "surfaces/test_slots.py",
    ("`lineage_unresolved`", 1): "surfaces/test_slots.py",
    ("A SQLite library", 0): "operations/test_health.py",
    ("`recovery_mode`", 0): "test_a_deployment_is_confirmed_and_cleared_by_the_commands_of_its_section",
    ("A contract", 0): "test_a_contract_is_certified_by_the_commands_of_its_section",
    ("An action", 0): "test_an_action_is_usable_again_by_the_commands_of_its_section",
}


def test_every_command_of_the_page_is_typed_by_a_test() -> None:
    """A new block has to say which one types it."""
    typed = {(heading, block) for heading, block, *_ in CASES.values()} | set(TYPED_ELSEWHERE)
    known = [heading for heading, _ in typed]
    there: set[tuple[str, int]] = set()
    for section in PAGE.split("\n## ")[1:]:
        title = section.splitlines()[0]
        count = len(re.findall(r"```console\n", section))
        name = next((heading for heading in known if title.startswith(heading)), title)
        there |= {(name, block) for block in range(count)}
    assert there == typed
    for test in TYPED_ELSEWHERE.values():
        assert test in globals() or (Path(__file__).parents[1] / test).exists()


@pytest.mark.rule("SY-03", "D-04", "C-095")
@pytest.mark.parametrize("case", CASES)
def test_the_commands_of_a_section_do_what_it_says(local_shop: Shop, case: str) -> None:
    """From the state that the section is about to the one that it promises, by nothing but its commands."""
    heading, block, arrange, names, attempt, link = CASES[case]
    shop = local_shop
    arrange(shop)
    if case in {"conflict, disposed", "adopt"}:
        names = {"remote_id": str(shop.remote.records[-1].id)}
    type_all(shop, blocks(heading)[block], **names)
    assert decisions.attempt_of(shop, NOTE)["status"] == attempt
    links = shop.json("links", "--object", "Note", "--id", NOTE)["links"]
    assert [row["status"] for row in links] == ([link] if link else [])
    assert shop.json("verify")["is_whole"] is True


def test_the_commands_that_only_look_are_answered(local_shop: Shop) -> None:
    """As they stand there, on a create in doubt."""
    shop = local_shop
    decisions.doubtful(shop, NOTE)
    type_all(shop, [*blocks("Looking")[0], *blocks("Looking")[1]])
    type_all(shop, [blocks("Deciding")[0][0].replace("--row-version 4", "--row-version N")])
    assert decisions.attempt_of(shop, NOTE)["remote_id"] == "6001"


@pytest.mark.rule("C-017", "SY-03")
def test_a_file_made_as_the_page_says_is_tried_and_done(local_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `stuck --cause`, by the page's own jq line where jq is installed; a dry run first, then all of it."""
    shop = local_shop
    monkeypatch.chdir(shop.home)
    for number in (1, 2, NOTE):
        decisions.failed(shop, number)
    [found] = shop.json("stuck", "--cause", "failed/remote_rejected", "--limit", 200)["groups"]
    lines = [f'{row["target_id"]},{row["row_version"]},supersede,reserve,"mended, ticket 17"' for row in found["rows"]]
    (shop.home / "decisions.csv").write_text("\n".join(["attempt_id,row_version,verb,argument,reason", *lines]) + "\n")
    dry, real = blocks("Many at once")[0]
    type_all(shop, [dry])
    assert decisions.attempt_of(shop, NOTE)["status"] == "terminal_failed"
    type_all(shop, [real])
    assert decisions.attempt_of(shop, NOTE)["status"] == "pending"
    assert shop.json("stuck")["groups"] == []


@pytest.mark.rule("D-36")
def test_a_deployment_is_confirmed_and_cleared_by_the_commands_of_its_section(local_shop: Shop) -> None:
    """Each step is what `stuck` says first; after the last one a record without a link is created again."""
    shop = local_shop
    assert shop.run("deployment", "recover", "--reason", "restored").code == 0
    lines = blocks("`recovery_mode`")[0]
    for kind, line in (("recovering", lines[1]), ("uncleared", lines[2])):
        [group] = shop.json("stuck")["groups"]
        assert (group["kind"], line.startswith(group["rows"][0]["first"]["command"].split(" --")[0])) == (kind, True)
        other = ("--confirmations", 7, "--reason", "somebody was quicker")
        assert shop.json(*line.split()[1:3], *other, code=1)["error"]["code"] == "stale_version"
        type_all(shop, [lines[0], line])
    assert shop.json("stuck")["groups"] == []
    decisions.linked(shop, NOTE)


@pytest.mark.rule("D-07")
def test_a_contract_is_certified_by_the_commands_of_its_section(local_shop: Shop) -> None:
    """A create in doubt waits for it; once it is proved, the replay that it allows is offered."""
    shop = local_shop
    with certificates.sandbox(honours=True) as remote:
        pack = certificates.claiming(shop, remote.base_url)
        pack.write_text(
            pack.read_text().replace(
                "    auth: {kind: bearer}\n", "    auth: {kind: bearer}\n    retry: {attempts: 1}\n"
            )
        )
        assert shop.run("pack", "apply", pack).code == 0
        decisions.doubtful(shop, NOTE)
        causes = {group["cause"]: group for group in shop.json("stuck")["groups"]}
        assert causes["uncertified"]["rows"][0]["first"]["name"] == "pack certify"
        type_all(shop, [line.replace("FILE", str(pack)) for line in blocks("A contract")[0]])
    assert "uncertified" not in {group["cause"] for group in shop.json("stuck")["groups"]}
    names = {verb["name"] for verb in shop.json("explain", "Note", NOTE)["actions"][0]["verbs"]}
    assert "reconcile replay" in names


def test_an_action_is_usable_again_by_the_commands_of_its_section(local_shop: Shop) -> None:
    """A pack whose profile was switched off, and the one of before."""
    shop = local_shop
    decisions.linked(shop, NOTE)
    good = shop.pack.read_text()
    shop.pack.write_text(good.replace("    auth: {kind: bearer}\n", "    auth: {kind: bearer}\n    active: false\n"))
    assert shop.run("pack", "apply", shop.pack).code == 0
    assert "unusable/install_unusable" in {group["cause"] for group in shop.json("stuck")["groups"]}
    shop.pack.write_text(good)
    type_all(shop, [line.replace("FILE", str(shop.pack)) for line in blocks("An action")[0]])
    assert shop.json("stuck")["groups"] == []


@pytest.mark.rule("D-35")
def test_a_retired_record_is_created_again_by_the_command_of_its_section(local_shop: Shop) -> None:
    """Retire, release the slot, save: a second remote record, and a second link."""
    shop = local_shop
    gone(shop)
    type_all(shop, [*blocks("`remote_gone`")[2], *blocks("`link_retired`")[0]])
    assert shop.run("save", "Note", NOTE, "--user", "ann").code == 0
    shop.drain()
    rows = shop.json("links", "--object", "Note", "--id", NOTE)["links"]
    assert sorted(row["status"] for row in rows) == ["finalized", "retired"]


@pytest.mark.rule("DR-15", "SY-03")
def test_a_blocked_record_is_created_again_by_the_commands_of_its_section(local_shop: Shop) -> None:
    """Its save is refused and `explain` says so; then its create path is validated, and a second record is made."""
    shop = local_shop
    decisions.blocked(shop, NOTE)
    assert shop.run("save", "Note", NOTE, "--user", "ann").code == 1
    [said] = shop.json("explain", "Note", NOTE)["actions"]
    assert (said["state"], said["needs_person"]) == ("blocked", True)
    assert "validate-create" in {verb["name"] for verb in said["verbs"]}
    type_all(shop, blocks("`drift`")[2])
    rows = shop.json("links", "--object", "Note", "--id", NOTE)["links"]
    assert sorted(row["status"] for row in rows) == ["finalized", "retired"]
    assert shop.json("explain", "Note", NOTE)["actions"][0]["state"] == "synced"


@pytest.mark.rule("SY-03")
def test_the_same_decisions_are_refused_without_a_token_once_principals_are_defined(local_shop: Shop) -> None:
    """No token, a viewer's, an operator of another tenant's: refused, and nothing was changed."""
    shop = local_shop
    row = decisions.failed(shop, NOTE)
    tokens = {}
    by: list[str] = []
    for name, role, more in (
        ("root", "admin", ()),
        ("vera", "viewer", ()),
        ("nora", "operator", ("--tenant", "north")),
        ("olga", "operator", ()),
        ("peter", "approver", ()),
    ):
        added = shop.json("principal", "add", name, "--role", role, *more, *by)
        tokens[name] = shop.home / f"{name}.token"
        tokens[name].write_text(added["token"] + "\n")
        by = ["--token-file", str(tokens["root"])]

    def supersede(*more: object, code: int) -> Any:
        return decisions.decided(shop, "supersede", row, *more, code=code)

    assert supersede(code=1)["error"]["code"] == "token_refused"
    for name in ("vera", "nora"):
        assert supersede("--token-file", tokens[name], code=1)["error"]["code"] == "not_permitted"
    settings = shop.config.read_text()
    shop.config.write_text(settings + "\n[operators]\nsecond_principal = true\n")
    mine = ("--token-file", tokens["olga"])
    assert supersede(*mine, code=1)["error"]["evidence"]["needs"] == "approver"
    assert supersede(*mine, "--approver-token-file", tokens["olga"], code=1)["error"]["code"] == "not_permitted"
    assert supersede(*mine, "--approver-token-file", tokens["vera"], code=1)["error"]["code"] == "not_permitted"
    same = ("--token-file", tokens["peter"], "--approver-token-file", tokens["peter"])
    assert supersede(*same, code=1)["error"]["code"] == "not_permitted"
    assert supersede(*mine, "--approver-token-file", tokens["peter"], code=0)["after"] == "superseded"
    shop.variables["PUSHLINK_TOKEN"] = tokens["olga"].read_text().strip()
    decisions.decided(shop, "retire", decisions.linked(shop, 7))
    names = [moment["actor"] for moment in shop.json("history", "Note", 7)["history"] if moment["kind"] == "action"]
    assert names == ["olga"]
    told = [(row["actor"], row["evidence"]["needs"]) for row in actions_of(shop) if row["verb"] == "not permitted"]
    assert told == [("vera", "operator"), ("nora", "operator"), *TWO_WRONG_APPROVERS, ("peter", "another principal")]
    commands = {row["evidence"]["command"] for row in actions_of(shop) if row["verb"] == "not permitted"}
    assert commands == {f"supersede {row['id']}"}
    assert shop.json("verify")["is_whole"] is True


@pytest.mark.rule("SY-03")
def test_a_refused_token_is_audited_and_ten_lock_the_principal_out(local_shop: Shop) -> None:
    """Whatever the command: one row each, the command's own transaction leaves nothing, and the chain is whole."""
    shop = local_shop
    row = decisions.failed(shop, NOTE)
    root = shop.json("principal", "add", "root", "--role", "admin")
    wrong, right = shop.home / "wrong", shop.home / "right"
    wrong.write_text(root["token"][:-1])
    right.write_text(root["token"])
    before = shop.json("verify")["actions"]
    assert decisions.decided(shop, "supersede", row, code=1)["error"]["code"] == "token_refused"
    for words in (
        ("supersede", row["id"], "--row-version", row["row_version"]),
        ("principal", "revoke", "root"),
        ("deployment", "recover"),
        ("pack", "apply", shop.pack),
    ):
        answer = shop.json(*words, "--reason", "r", "--token-file", wrong, code=1)
        assert answer["error"]["code"] == "token_refused"
    assert shop.json("verify") == shop.json("verify") | {"actions": before + 5, "is_whole": True}
    for _ in range(6):
        shop.json("pack", "apply", shop.pack, "--token-file", wrong, code=1)
    assert shop.json("pack", "apply", shop.pack, "--token-file", right, code=1)["error"]["code"] == "token_refused"
    assert decisions.attempt_of(shop, NOTE)["status"] == "terminal_failed"


@pytest.mark.rule("SY-03")
def test_a_pack_is_applied_and_uninstalled_by_an_administrator_with_a_line_in_the_audit(local_shop: Shop) -> None:
    """Until a principal is defined by whoever runs the command; then by an administrator's token alone."""
    shop = local_shop
    link = decisions.linked(shop, NOTE)
    by: list[object] = []
    for name, role in (("root", "admin"), ("olga", "operator")):
        added = shop.json("principal", "add", name, "--role", role, *by)
        (shop.home / name).write_text(added["token"])
        by = ["--token-file", shop.home / "root"]
    newer = shop.home / "newer.yaml"
    newer.write_text(re.sub(r"version: 1$", "version: 2", shop.pack.read_text(), flags=re.MULTILINE))
    installed = shop.json("pack", "list")["installs"][0]
    gone = ("pack", "uninstall", installed["pack"], "--reason", "the connection ends", "--revision")
    for words in (("pack", "apply", newer), (*gone, installed["revision"])):
        assert shop.json(*words, code=1)["error"]["code"] == "token_refused"
        assert shop.json(*words, "--token-file", shop.home / "olga", code=1)["error"]["code"] == "not_permitted"
    applied = shop.json("pack", "apply", newer, *by)["applied"]
    assert applied["is_changed"]
    assert shop.json(*gone, installed["revision"], *by, code=1)["error"]["code"] == "stale_version"
    assert shop.json("pack", "uninstall", "nothing", "--reason", "r", "--revision", 1, *by, code=2)["error"]
    ended = shop.json(*gone, applied["install_revision"], *by)["uninstalled"]
    assert (ended["status"], ended["install_id"]) == ("uninstalled", installed["install_id"])
    assert decisions.link_of(shop, NOTE)["id"] == link["id"]
    assert shop.run(*gone, 1, *by).code == 2


@pytest.mark.rule("SY-03", "D-34")
def test_the_database_is_kept_by_the_commands_of_its_section(local_shop: Shop) -> None:
    """A rotation, an erasure and a pruning, as they stand there; each tells what it did, and the audit is whole."""
    shop = local_shop
    keeping.keyed(shop, "k1")
    decisions.linked(shop, NOTE)
    for title in ("second", "third"):
        decisions.changed(shop, NOTE, title)
        shop.drain()
    [lines] = blocks("Keeping the database")
    assert shop.json("prune", "--reason", "a look", code=2)["error"]["code"] == "caller_mistake"
    keeping.keyed(shop, "k1", "k2")
    shop.sql("UPDATE pushlink_push_attempt SET updated_at = :then", then=AN_HOUR_AGO)
    shop.sql("UPDATE pushlink_push_slot SET wanted_at = :then", then=AN_HOUR_AGO)
    dry = shop.json("erase", "--after-days", 90, "--dry-run", "--reason", "a look")["erase"]
    assert (dry["is_dry_run"], dry["counts"]) == (True, {"attempts": 3, "wanted": 1})
    type_all(shop, lines)
    assert shop.json("rekey", "--dry-run", "--reason", "a look")["is_whole"] is True
    found = {row["verb"]: row["after"] for row in actions_of(shop)}
    assert found["rekey"] == {"requests": 3, "replies": 3, "wanted": 1}
    assert found["erase"] == {"attempts": 3, "requests": 3, "replies": 3, "wanted": 1}
    assert found["prune"] == {"updates": 1, "requests": 1, "replies": 1, "events": 2}
    assert shop.json("verify")["is_whole"] is True


@pytest.mark.rule("SY-03")
def test_the_audit_is_held_against_its_chain_and_anchors(local_shop: Shop) -> None:
    """As the section says: places, kinds and exit codes, and only what holds is kept as an anchor."""
    shop, anchors = local_shop, local_shop.home / "anchors.jsonl"
    [lines] = blocks("The audit")
    type_all(shop, [line.replace("anchors.jsonl", str(anchors)) for line in lines if "export" not in line])
    decisions.decided(shop, "abandon", decisions.held(shop, NOTE))
    found = shop.json("verify", "--anchor", anchors)
    assert (found["is_whole"], found["anchors"], found["breaks"], found["broken"]) == (True, 1, 0, [])
    assert len(anchors.read_text().splitlines()) == 2
    assert "2 earlier anchors hold" in shop.run("verify", "--anchor", anchors).out
    shop.sql("DROP TRIGGER pushlink_operator_action_keeps_rows")
    shop.sql("DELETE FROM pushlink_operator_action WHERE verb = :verb", verb="abandon")
    assert shop.json("verify")["is_whole"] is True
    cut = shop.json("verify", "--anchor", anchors, code=1)
    assert [(b["chain"], b["kind"], b["place"]) for b in cut["broken"]][:1] == [
        ("decision", "truncated", found["actions"])
    ]
    assert cut["breaks"] == 2
    assert len(anchors.read_text().splitlines()) == 3
    said = shop.run("verify", "--anchor", anchors)
    assert (said.code, "truncated" in said.out) == (1, True)
    anchors.write_text("no anchor\n")
    assert shop.json("verify", "--anchor", anchors, code=2)["error"]["evidence"]["line"] == 1


@pytest.mark.rule("SY-03")
def test_anchors_are_signed_where_the_settings_name_a_key_and_a_forged_one_is_found(local_shop: Shop) -> None:
    """One machine signs; another one has the public half, checks and adds nothing; a changed line is a break."""
    shop, anchors = local_shop, local_shop.home / "anchors.jsonl"
    settings = shop.config.read_text()
    shop.variables["ANCHOR_KEY"] = "42" * 32
    signing = settings + '\n[audit]\nsign_with = "k1"\n[audit.keys]\nk1 = "env:ANCHOR_KEY"\n'
    shop.config.write_text(signing)
    for signed in (0, 1):
        found = shop.json("verify", "--anchor", anchors)
        assert (found["is_whole"], found["anchors"], found["signed"]) == (True, signed, signed)
    public = shop.json("verify", "--public-keys")["public_keys"]
    assert shop.run("verify", "--public-keys").out.splitlines() == ["[audit.keys]", f'"k1" = "{public["k1"]}"']
    shop.config.write_text(settings + f'\n[audit.keys]\nk1 = "{public["k1"]}"\n')
    said = shop.run("verify", "--anchor", anchors)
    assert (said.code, "2 earlier anchors hold, 2 of them by their signatures" in said.out) == (0, True)
    assert "no anchor was added" in said.err
    lines = anchors.read_text().splitlines()
    assert len(lines) == 2
    forged = json.loads(lines[1]) | {"decisions": 0, "head": None}
    anchors.write_text(lines[0] + "\n" + json.dumps(forged, sort_keys=True, separators=(",", ":")) + "\n")
    shop.config.write_text(signing)
    found = shop.json("verify", "--anchor", anchors, code=1)
    assert [(b["chain"], b["kind"], b["place"]) for b in found["broken"]] == [("anchor", "forged", 2)]
    assert len(anchors.read_text().splitlines()) == 2
    shop.config.write_text(settings)
    assert "not signed" in shop.run("verify", "--anchor", shop.home / "unsigned.jsonl").err


def actions_of(shop: Shop) -> list[dict[str, Any]]:
    """What was done to the whole deployment, from the table: no record's history has it."""
    import sqlalchemy as sa

    engine = sa.create_engine(shop.database_url)
    with engine.connect() as conn:
        rows = conn.execute(sa.text("SELECT * FROM pushlink_operator_action ORDER BY id")).mappings()
        found = [
            {**row, "after": json.loads(row["after"] or "{}"), "evidence": json.loads(row["evidence"] or "{}")}
            for row in rows
        ]
    engine.dispose()
    return found
