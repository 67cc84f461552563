"""The commands of docs/operations.md do what its sections say, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating
from surfaces import decisions, keeping
from surfaces.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
NOTE = 42

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


#: Section, which of its blocks, how the case comes about, what is named, and the attempt and link afterwards.
CASES: dict[str, tuple[str, int, Callable[[Shop], Any], dict[str, str], str | None, str | None]] = {
    "adopt": ("`effect_unknown`", 0, lambda s: decisions.doubtful(s, NOTE), {}, "finalized", "finalized"),
    "absent": ("`effect_unknown`", 1, absent, {}, "finalized", "finalized"),
    "applied": ("`effect_unknown`", 3, lost_update, {}, "finalized", "finalized"),
    "resend": ("`effect_unknown`", 4, lost_update, {}, "pending", "finalized"),
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


@pytest.mark.rule("SY-03", "D-04", "C-095")
@pytest.mark.parametrize("case", CASES)
def test_the_commands_of_a_section_do_what_it_says(local_shop: Shop, case: str) -> None:
    """From the state that the section is about to the one that it promises, by nothing but its commands."""
    heading, block, arrange, names, attempt, link = CASES[case]
    shop = local_shop
    arrange(shop)
    if "disposed" in case or case == "adopt":
        names = {"remote_id": str(shop.remote.records[-1].id)}
    type_all(shop, blocks(heading)[block], **names)
    assert decisions.attempt_of(shop, NOTE)["status"] == attempt
    links = shop.json("links", "--object", "Note", "--id", NOTE)["links"]
    assert [row["status"] for row in links] == ([link] if link else [])
    assert shop.json("verify")["is_whole"] is True


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
