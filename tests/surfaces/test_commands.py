"""What each command does and says, for people and for scripts, on both databases where they matter."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TextIO

import pytest

from pushlink.surfaces.documents import new_file
from pushlink.testing import verbs
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote
from surfaces import decisions
from surfaces.conftest import TOKEN, Shop

# --------------------------------------------------------------------------------------- init


def test_init_writes_a_deployment_that_holds(local_shop: Shop, tmp_path: Path) -> None:
    """Settings load, the pack passes its check, the secret is the owner's alone; the next steps are said."""
    home = tmp_path / "fresh"
    answer = local_shop.run("init", home)
    assert answer.code == 0
    assert "pushlink db upgrade" in answer.out
    secret = home / "pushlink.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(bytes.fromhex(secret.read_text().strip())) == 32
    assert local_shop.run("pack", "check", home / "packs" / "notes.yaml").code == 0
    assert local_shop.json("pack", "test", home / "packs" / "notes.yaml")["tested"]["passed"] == 3
    from pushlink.settings import Settings

    settings = Settings.load(home / "pushlink.toml")
    assert settings.authority.kind == "policy"
    assert settings.secret() == secret.read_bytes().strip()


def test_init_writes_over_nothing_unless_it_is_forced_and_never_over_a_secret(local_shop: Shop, tmp_path: Path) -> None:
    """Keys of requests are derived from the secret: losing it would be losing them."""
    home = tmp_path / "fresh"
    local_shop.run("init", home)
    secret = (home / "pushlink.secret").read_text()
    before = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    refused = local_shop.run("init", home, "--json")
    assert (refused.code, refused.document["error"]["code"]) == (2, "caller_mistake")
    assert {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert local_shop.run("init", home, "--force").code == 0
    assert (home / "pushlink.secret").read_text() == secret
    assert (home / "packs" / "notes.yaml").read_bytes() != before["packs/notes.yaml"]


def test_init_leaves_nothing_half_written(local_shop: Shop, tmp_path: Path) -> None:
    """A file in the way of a directory: it fails, and what was not there is not there."""
    home = tmp_path / "fresh"
    home.mkdir()
    (home / "packs").write_text("in the way")
    answer = local_shop.run("init", home)
    assert answer.code == 3
    assert [path.name for path in home.iterdir()] == ["packs"]


# --------------------------------------------------------------------------------------- db and doctor


def test_db_upgrade_brings_an_empty_database_to_this_release(
    tmp_path: Path, empty_database_url: str, remote: FaultyRemote
) -> None:
    """Check says no, upgrade runs, check says yes, upgrade again does nothing."""
    shop = Shop(tmp_path, empty_database_url, remote)
    shop.run("init", tmp_path, "--database-url", empty_database_url)
    refused = shop.run("links")
    assert refused.code == 3
    assert "pushlink db upgrade" in refused.err
    assert shop.run("db", "check").code == 1
    first = shop.json("db", "upgrade")
    assert (first["before"], first["is_changed"]) == (None, True)
    assert shop.json("db", "check")["is_current"] is True
    assert shop.json("db", "upgrade")["is_changed"] is False


def test_doctor_of_a_sound_deployment_is_well(shop: Shop) -> None:
    """Nothing fails: the machine's SQLite library may have a known fault, and this shop has no state directory."""
    found = shop.json("doctor")
    assert found["healthy"] is True
    verdicts = {check["name"]: check["verdict"] for check in found["checks"] if check["name"] != "library"}
    assert verdicts.pop("restore_guard") == "warn"
    assert set(verdicts.values()) == {"ok"}
    assert found["checks"][0]["name"] == "settings"


@pytest.mark.rule("D-36")
def test_doctor_is_content_with_a_state_directory(shop: Shop) -> None:
    """What the warning says to do makes it go away."""
    shop.variables = {**shop.variables, "PUSHLINK_STATE_DIRECTORY": str(shop.home / "state")}
    verdicts = {check["name"]: check["verdict"] for check in shop.json("doctor")["checks"]}
    assert verdicts["restore_guard"] == "ok"


@pytest.mark.rule("D-34", "AU-05")
def test_doctor_names_what_is_wrong_and_shows_no_secret(shop: Shop) -> None:
    """A missing credential and an open secret file: exit 1, next steps, and never a value."""
    (shop.home / "pushlink.secret").chmod(0o644)
    shop.variables = {**shop.variables, "NOTES_TOKEN": ""}
    answer = shop.run("doctor")
    assert answer.code == 1
    assert "chmod 600" in answer.out
    assert "env:NOTES_TOKEN" in answer.out
    assert (shop.home / "pushlink.secret").read_text().strip() not in answer.out


def test_doctor_without_settings_says_how_to_begin(tmp_path: Path, local_shop: Shop) -> None:
    """A check like the others, and no traceback."""
    answer = local_shop.run("doctor", "--json", "--config", tmp_path / "nowhere.toml", config=False)
    assert answer.code == 1
    assert answer.document["checks"][0] == {
        "name": "settings",
        "verdict": "fail",
        "message": answer.document["checks"][0]["message"],
        "evidence": answer.document["checks"][0]["evidence"],
        "next_step": "pushlink init",
    }


# --------------------------------------------------------------------------------------- packs


def test_pack_check_points_into_the_file(local_shop: Shop) -> None:
    """File, line, column, what and the rule; exit 1."""
    local_shop.pack.write_text(local_shop.pack.read_text().replace("path: /notes\n", "path: notes\n"))
    answer = local_shop.run("pack", "check", local_shop.pack)
    assert answer.code == 1
    assert "[path]" in answer.out
    assert f"{local_shop.pack}:" in answer.out
    applied = local_shop.run("pack", "apply", local_shop.pack, "--json")
    assert (applied.code, applied.document["error"]["code"]) == (3, "pack_invalid")


def test_pack_apply_and_list_are_one_tenants(shop: Shop) -> None:
    """Applying again changes nothing; another tenant's install is not shown."""
    assert shop.json("pack", "apply", shop.pack)["applied"]["is_changed"] is False
    assert shop.json("pack", "apply", shop.pack, "--tenant", "north")["applied"]["is_new_incarnation"] is True
    [install] = shop.json("pack", "list", "--tenant", "north")["installs"]
    assert (install["tenant"], install["status"]) == ("north", "active")


def test_pack_schema_is_the_schema(local_shop: Shop) -> None:
    """It can be piped into a file as it is."""
    assert json.loads(local_shop.run("pack", "schema").out)["$id"] == "urn:pushlink:schema:pack:1"


# --------------------------------------------------------------------------------------- save and push


@pytest.mark.rule("GT-08")
def test_save_says_what_came_of_it(shop: Shop) -> None:
    """Reserved, then unchanged; a record that is not there is refused with exit 1."""
    shop.note(1)
    [outcome] = shop.json("save", "Note", 1, "--user", "ann")["outcomes"]
    assert (outcome["outcome"], outcome["ordinal"]) == ("reserved", 1)
    [outcome] = shop.json("save", "Note", 1, "--user", "ann")["outcomes"]
    assert outcome["outcome"] == "unchanged"
    [outcome] = shop.json("save", "Note", 99, "--user", "ann", code=1)["outcomes"]
    assert (outcome["outcome"], outcome["code"]) == ("refused", "source_gone")
    said = shop.run("save", "Note", 99, "--user", "ann")
    assert said.code == 1
    assert "source_gone" in said.out


@pytest.mark.parametrize("batch", [1, 2, 500])
def test_a_backfill_walks_through_every_record_once(shop: Shop, batch: int) -> None:
    """Batches join without a gap; run again it changes nothing."""
    for number in (5, 1, 30, 2, 7):
        shop.note(number)
    first = shop.json("backfill", "Note", "--user", "ann", "--batch", batch)
    assert (first["records"], first["outcomes"]["reserved"], first["refused"]) == (5, 5, {})
    again = shop.json("backfill", "Note", "--user", "ann", "--batch", batch)
    assert {name: count for name, count in again["outcomes"].items() if count} == {"unchanged": 5}


def test_push_sends_one_record_here_and_now(shop: Shop) -> None:
    """Saved, pushed, linked: exit 0; pushed again nothing is due."""
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    found = shop.json("push", "Note", 1)
    assert [row["standing"] for row in found["attempts"]] == ["dispatched"]
    assert found["states"] == {"push_note": "synced"}
    assert shop.remote.creates == 1
    assert shop.json("push", "Note", 1)["attempts"] == []


def test_a_plan_leaves_with_5_when_something_would_stop(local_shop: Shop) -> None:
    """With `--exit-code`: a link whose endpoint would be another one; the pack as it is stops nothing."""
    shop = local_shop
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    shop.drain()
    moved = shop.home / "moved.yaml"
    moved.write_text(shop.pack.read_text().replace(shop.remote.base_url, "https://elsewhere.example.com"))
    assert shop.run("pack", "plan", shop.pack, "--exit-code").code == 0
    assert shop.run("pack", "plan", moved).code == 0
    assert shop.run("pack", "plan", moved, "--exit-code").code == 5


@pytest.mark.rule("PO-05")
def test_push_leaves_with_5_when_a_person_is_needed(shop: Shop) -> None:
    """The remote took the create and hung up: parked, explained, and not sent again."""
    shop.remote.next(verbs.store_then_close(), when=creating)
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    first = shop.run("push", "Note", 1)
    assert first.code == 5
    assert "pushlink explain Note 1" in first.out
    assert shop.run("push", "Note", 1).code == 5
    assert shop.remote.creates == 1
    assert shop.run("explain", "Note", 1).code == 0
    explained = shop.run("explain", "Note", 1, "--exit-code")
    assert explained.code == 5
    assert "reconcile adopt" in explained.out


@pytest.mark.rule("PO-07")
def test_push_leaves_with_4_when_it_may_be_tried_later(shop: Shop) -> None:
    """Nobody listens: nothing was sent, it waits for its time."""
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    with shop.remote.down():
        assert shop.run("push", "Note", 1).code == 4
    [row] = shop.json("attempts")["attempts"]
    assert (row["status"], row["reason"]) == ("pending", "not_sent")


# --------------------------------------------------------------------------------------- reading


def test_lists_are_paged_and_filtered(shop: Shop) -> None:
    """Pages join; filters narrow; people get a table."""
    for number in (1, 2, 3):
        shop.note(number)
    shop.run("backfill", "Note", "--user", "ann")
    shop.drain()
    first = shop.json("links", "--limit", 2)
    rest = shop.json("links", "--limit", 2, "--page", first["next_page"])
    rows = first["links"] + rest["links"]
    assert sorted(row["record_id"] for row in rows) == ["1", "2", "3"]
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    assert rest["next_page"] is None
    assert shop.json("attempts", "--status", "pending", "--status", "processing")["attempts"] == []
    assert len(shop.json("attempts", "--object", "Note", "--id", 2)["attempts"]) == 1
    assert "remote id" in shop.run("links").out
    assert "more: --page" in shop.run("attempts", "--limit", 1).err


def test_history_shows_what_happened(shop: Shop) -> None:
    """From the save to the finalized link."""
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    shop.drain()
    events = [(row["subject"], row["event"]) for row in shop.json("history", "Note", 1)["history"]]
    assert events[0] == ("create", "reserve")
    assert ("link", "finalize") in events
    assert "user:ann" in shop.run("history", "Note", 1).out


@pytest.mark.rule("AU-05", "D-34")
def test_no_command_shows_a_credential_or_a_body(shop: Shop) -> None:
    """Everything that can be read about a record, and neither the token nor the note's text is in it."""
    shop.note(1, title="a text for the remote alone")
    shop.run("save", "Note", 1, "--user", "ann")
    shop.drain()
    commands = [
        ("links",),
        ("attempts",),
        ("explain", "Note", 1),
        ("history", "Note", 1),
        ("doctor",),
        ("pack", "list"),
    ]
    for command in commands:
        for extra in ((), ("--json",)):
            answer = shop.run(*command, *extra)
            assert TOKEN not in answer.out + answer.err
            assert "a text for the remote alone" not in answer.out + answer.err


def test_a_remote_cannot_steer_the_terminal(shop: Shop) -> None:
    """An id with control characters is shown as escapes."""
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    shop.drain()
    shop.sql("UPDATE pushlink_remote_link SET remote_id = :id", id="a\x1b[31mred\u202eb")
    answer = shop.run("links")
    assert "\x1b" not in answer.out
    assert "\u202e" not in answer.out
    assert "a\\x1b[31mred\\x202eb" in answer.out
    assert shop.json("links")["links"][0]["remote_id"] == "a\x1b[31mred\u202eb"


# --------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("save", "Note", "1"), 2, "caller_mistake"),
        (("save", "Note", "--user", "ann"), 2, "caller_mistake"),
        (("save", "Nothing", "1", "--user", "ann"), 2, "object_unknown"),
        (("explain", "Note", "one"), 2, "record_id_unusable"),
        (("attempts", "--id", "1"), 2, "caller_mistake"),
        (("attempts", "--status", "asleep"), 2, "caller_mistake"),
        (("links", "--limit", "1000"), 2, "caller_mistake"),
        (("frobnicate",), 2, "caller_mistake"),
        (("pack", "apply", "nowhere.yaml"), 3, "pack_invalid"),
    ],
)
def test_a_mistake_is_a_message_and_an_exit_code(
    local_shop: Shop, words: tuple[str, ...], code: int, said: str
) -> None:
    """The same for people and as JSON; never a traceback."""
    document = local_shop.run(*words, "--json")
    assert (document.code, document.document["error"]["code"]) == (code, said)
    assert set(document.document["error"]) == {"code", "message", "evidence", "next"}
    spoken = local_shop.run(*words)
    assert spoken.code == code
    assert spoken.out == ""
    assert spoken.err
    assert "Traceback" not in spoken.err


@pytest.mark.parametrize(
    ("database_url", "code", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/nothing", 4, "unavailable"),
        ("sqlite:////nowhere/at/all.db", 4, "unavailable"),
        ("not an address", 3, "settings_invalid"),
        ("oracle://x/y", 3, "settings_invalid"),
    ],
)
def test_a_database_that_cannot_be_used_is_said_so(local_shop: Shop, database_url: str, code: int, said: str) -> None:
    """Unavailable may be tried again; a wrong address has to be mended."""
    local_shop.variables = {**local_shop.variables, "PUSHLINK_DATABASE_URL": database_url}
    answer = local_shop.run("links", "--json")
    assert (answer.code, answer.document["error"]["code"]) == (code, said)


def test_recovery_mode_is_a_refusal(shop: Shop) -> None:
    """Nothing is sent by hand either."""
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    shop.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    assert shop.json("push", "Note", 1, code=1)["error"]["code"] == "recovery_mode"
    [outcome] = shop.json("save", "Note", 1, "--user", "ann", code=1)["outcomes"]
    assert outcome["code"] == "recovery_mode"


def test_an_export_replaces_a_file_only_when_it_is_told_to_and_then_with_a_whole_one(local_shop: Shop) -> None:
    """Exit code 2 and the old file, to the byte; with --overwrite the new one; no part of either is left beside it."""
    shop = local_shop
    file = shop.home / "all.jsonl"
    file.write_text("kept by somebody\n")
    refused = shop.json("export", file, code=2)["error"]
    assert (refused["code"], "--overwrite" in refused["next"]) == ("caller_mistake", True)
    assert file.read_text() == "kept by somebody\n"
    decisions.linked(shop, 1)
    lines = shop.json("export", file, "--overwrite")["lines"]
    assert len(file.read_text().splitlines()) == lines > 1
    fresh = shop.home / "fresh.jsonl"
    assert shop.json("export", fresh)["lines"] == lines
    assert fresh.read_bytes() == file.read_bytes()
    assert shop.run("export", shop.home / "nowhere" / "all.jsonl").code == 2
    assert not list(shop.home.glob("*.part"))


def test_an_export_that_fails_on_the_way_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    """Neither half of a new file, nor less than the old one."""

    def stopped(file: TextIO) -> None:
        file.write("half")
        raise RuntimeError

    old = tmp_path / "old"
    old.write_text("old")
    for path, overwrite in ((old, True), (tmp_path / "new", False)):
        with pytest.raises(RuntimeError), new_file(path, overwrite=overwrite) as file:
            stopped(file)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]
