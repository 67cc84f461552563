"""docs/cli.md is true: its commands, exit codes, JSON keys and states are those of the code."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from pushlink.errors import CallerError, Code, ConfigurationError, Contended, PackError, ProtocolViolation, Unavailable
from pushlink.operations import words
from pushlink.operations.words import Word
from pushlink.protocol.fates import AttemptFate, LinkFate
from pushlink.surfaces.cli import app
from pushlink.surfaces.exits import MEANINGS, Exit, exit_of
from pushlink.testing import verbs
from pushlink.testing.messages import creating
from surfaces import adoptions, certificates, decisions, keeping, mappings, slots
from surfaces.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


#: What a shell does behind a call.
SHELL = frozenset({"|", "||", "&&", ">"})
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in found if row[0] not in {"command", "code", "state", "rows of", "fate"}]


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(command: Any, path: str) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            found[path] = command
            return
        for name, one in below.items():
            walk(one, f"{path} {name}")

    walk(typer.main.get_command(app), "pushlink")
    return found


def test_the_page_lists_every_command() -> None:
    """All of them, in the order of their groups, and no other one."""
    assert {row[0].strip("`") for row in rows(section("Commands"))} == set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_answers_in_json_and_has_examples(name: str) -> None:
    """`--json` everywhere; every help ends with examples that are commands of this page."""
    command = commands()[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options
    assert command.epilog.startswith("Examples:")
    assert name in command.epilog
    assert command.help
    if name not in {"pushlink init", "pushlink pack check", "pushlink pack schema", "pushlink pack test"}:
        assert "--config" in options


def calls(text: str) -> list[list[str]]:
    """The calls of pushlink in lines of a shell, in words and without what the shell does with their output."""
    found = []
    for line in text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        begins = [index for index, word in enumerate(words) if word == "pushlink"]
        for begin, end in itertools.pairwise([*begins, len(words)]):
            found.append(list(itertools.takewhile(lambda word: word not in SHELL, words[begin:end])))
    return found


def left_over(call: list[str]) -> list[str]:
    """Parse a call as the command line does, and answer with the words that its command did not take."""
    name = next((" ".join(call[:size]) for size in (4, 3, 2) if " ".join(call[:size]) in commands()), "")
    with commands()[name].make_context(name, call[len(name.split()) :]) as context:
        return context.args


@pytest.mark.parametrize("call", calls("\n".join(command.epilog for command in commands().values())), ids=" ".join)
def test_the_example_of_a_help_is_a_call_that_its_command_takes(call: list[str]) -> None:
    """Every argument is there, every option is one of the command's, and every value is one that it may have."""
    assert left_over(call) == []


@pytest.mark.parametrize("call", calls("\n".join(CONSOLE.findall(PAGE))), ids=" ".join)
def test_what_the_page_types_is_a_call(call: list[str]) -> None:
    """The same of the page's own lines."""
    assert left_over(call) == []


def test_the_page_has_the_exit_codes() -> None:
    """Number, name and meaning."""
    table = [(int(row[0]), row[1].strip("`"), row[2]) for row in rows(section("Exit codes"))]
    assert table == [(code.value, code.name, MEANINGS[code]) for code in Exit]


def test_every_kind_of_error_has_its_exit_code() -> None:
    """A script can tell a mistake, a refusal, something to mend and something to wait for."""
    assert exit_of(CallerError("x")) is Exit.USAGE
    assert exit_of(CallerError("x", code=Code.RECOVERY_MODE)) is Exit.REFUSED
    assert exit_of(ConfigurationError("x")) is Exit.CONFIGURATION
    assert exit_of(PackError("x")) is Exit.CONFIGURATION
    assert exit_of(Unavailable("x")) is Exit.UNAVAILABLE
    assert exit_of(Contended("x")) is Exit.UNAVAILABLE
    assert exit_of(ProtocolViolation("x")) is Exit.DEFECT


def test_the_page_has_every_state() -> None:
    """What `explain` may say, and nothing else; a state of one sentence is explained by that sentence."""
    singles = [value for value in vars(words).values() if isinstance(value, Word)]
    tables: list[Any] = [words.CREATES, words.UPDATES, words.HOLDS, words.LINKS]
    all_words = [*singles, *(word for table in tables for word in table.values() if word is not None)]
    assert {row[0].strip("`") for row in rows(section("What `explain` says"))} == {word.state for word in all_words}


def test_the_page_has_every_fate() -> None:
    """What a plan may say of a link or an attempt, and nothing else."""
    told = {(row[0].strip("`"), row[1] == "links") for row in rows(section("What `pack plan` says"))}
    assert told == {(fate.value, True) for fate in LinkFate} | {(fate.value, False) for fate in AttemptFate}


def keys_of(name: str) -> set[str]:
    [row] = [row for row in rows(section("JSON")) if row[0].strip("`") == name]
    return set(re.findall(r"`([a-z_]+)`", row[1]))


def changed_pack(shop: Shop) -> Path:
    """The pack with another flow version."""
    path = shop.home / "changed.yaml"
    path.write_text(re.sub(r"version: 1$", "version: 2", shop.pack.read_text(), flags=re.MULTILINE))
    return path


def cases_for(shop: Shop) -> Path:
    """One case of the pack."""
    path = shop.home / "cases.yaml"
    path.write_text("cases: [{name: a, object: Note, values: {title: t}, expect: {request: {method: POST}}}]")
    return path


def test_the_documents_have_the_keys_of_the_page(local_shop: Shop) -> None:
    """Every command is run, and its document and its rows are compared with the tables."""
    shop = local_shop
    shop.remote.next(verbs.answer(422), when=creating)
    shop.note(1)
    shop.note(2)
    seen = {
        "pushlink init": shop.json("init", shop.home / "other"),
        "pushlink doctor": shop.json("doctor"),
        "pushlink db upgrade": shop.json("db", "upgrade"),
        "pushlink db check": shop.json("db", "check"),
        "pushlink pack check": shop.json("pack", "check", shop.pack),
        "pushlink pack test": shop.json("pack", "test", shop.pack, cases_for(shop)),
        "pushlink pack plan": shop.json("pack", "plan", changed_pack(shop)),
        "pushlink pack apply": shop.json("pack", "apply", shop.pack),
        "pushlink pack list": shop.json("pack", "list"),
        "pushlink save": shop.json("save", "Note", 1, "--user", "ann"),
        "pushlink backfill": shop.json("backfill", "Note", "--user", "ann"),
        "pushlink push": shop.json("push", "Note", 1, code=5),
        "pushlink worker": shop.json("worker", "--until-idle", "--log-level", "error"),
        "pushlink links": shop.json("links"),
        "pushlink attempts": shop.json("attempts"),
        "pushlink explain": shop.json("explain", "Note", 1),
        "pushlink history": shop.json("history", "Note", 1),
        "pushlink deployment show": shop.json("deployment", "show"),
        "pushlink deployment general-worker": shop.json("deployment", "general-worker", "on", "--reason", "r"),
        "pushlink deployment recover": shop.json("deployment", "recover", "--reason", "r"),
        "pushlink deployment confirm": shop.json("deployment", "confirm", "--reason", "r"),
        "pushlink deployment clear": shop.json("deployment", "clear", "--reason", "r"),
    }
    seen |= certificates.documents(shop)
    seen |= decisions.documents(shop)
    seen |= adoptions.documents(shop)
    seen |= mappings.documents(shop)
    seen |= slots.documents(shop)
    seen |= keeping.documents(shop)
    installed = shop.json("pack", "list")["installs"][0]
    ending = ("pack", "uninstall", installed["pack"], "--revision", installed["revision"], "--reason", "r")
    seen["pushlink pack uninstall"] = shop.json(*ending)
    for name, document in seen.items():
        assert set(document) == keys_of(name), name
    in_bulk = {"pushlink reconcile --csv", "pushlink retire --slot"}
    assert {*seen, "pushlink pack schema"} - in_bulk == set(commands())
    assert set(shop.json("explain", "Nothing", 1, code=2)) == keys_of("any command that fails")
    for listed, document in [
        ("checks", seen["pushlink doctor"]),
        ("packs", seen["pushlink pack check"]),
        ("tested", {"tested": [seen["pushlink pack test"]["tested"]]}),
        ("cases", seen["pushlink pack test"]["tested"]),
        ("plan", {"plan": [seen["pushlink pack plan"]["plan"]]}),
        ("surfaces", shop.json("pack", "plan", changed_pack(shop))["plan"]),
        ("installs", seen["pushlink pack list"]),
        ("certified", {"certified": [seen["pushlink pack certify"]["certified"]]}),
        ("outcomes", seen["pushlink save"]),
        ("links", seen["pushlink links"]),
        ("attempts", seen["pushlink attempts"]),
        ("actions", seen["pushlink explain"]),
        ("history", seen["pushlink history"]),
        ("groups", seen["pushlink stuck"]),
        ("rows", seen["pushlink reconcile --csv"]),
        ("principals", seen["pushlink principal list"]),
        ("adoption_plan", {"adoption_plan": [seen["pushlink adopt plan"]["adoption_plan"]]}),
        ("adoption", {"adoption": [seen["pushlink adopt apply"]["adoption"]]}),
        ("adoption_rollback", {"adoption_rollback": [seen["pushlink adopt rollback"]["adoption_rollback"]]}),
        ("refused_rows", seen["pushlink adopt plan"]),
        ("manifest", {"manifest": [seen["pushlink mapping manifest"]["manifest"]]}),
        ("mapping", {"mapping": [seen["pushlink mapping apply"]["mapping"]]}),
        ("receipts", seen["pushlink mapping validate"]),
        ("slots", seen["pushlink slot list"]),
        ("rebind", {"rebind": [seen["pushlink slot rebind apply"]["rebind"]]}),
        ("retired", seen["pushlink retire --slot"]),
    ]:
        assert document[listed], listed
        assert set(document[listed][0]) == keys_of(listed), listed
    assert set(seen["pushlink push"]["attempts"][0]) == {"standing", "attempt"}
    assert set(seen["pushlink push"]["attempts"][0]["attempt"]) == keys_of("attempts")
