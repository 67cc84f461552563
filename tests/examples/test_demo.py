"""The demo that the README shows runs as it is shown: a process of its own, judged by its verdict and its exit code."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
README = ROOT / "README.md"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment that would lead a careless demo to somebody's real database."""
    return {**os.environ, "PUSHLINK_DATABASE_URL": f"sqlite:///{tmp_path / 'somebody.db'}", "COLUMNS": "40"}


def run(*command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What a command says in the project's directory."""
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environment, cwd=ROOT, check=False, timeout=110
    )


def plain(line: str) -> str:
    """A line without what is another each time: how long something took."""
    return re.sub(r"\d+\.\d s\b", "0.0 s", line)


@pytest.mark.timeout(300)
def test_the_demo_ends_with_equal_sides(tmp_path: Path, environment: dict[str, str]) -> None:
    """It creates, updates and refuses, finds every record equal, and the README shows what it says."""
    script = [sys.executable, "-W", "error", str(DEMO / "run.py"), "--folder", str(tmp_path / "demo")]
    done = run(*script, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    said = done.stdout
    assert "VERDICT: EQUAL: 279 records, 279 creates, 4 updates" in said
    assert "read_denied" in said
    assert "277 Reserved" in said
    assert "1 Queued, 262 Unchanged" in said
    assert [number for number in range(1, 10) if f"\n{number}  " not in said] == []
    assert not (tmp_path / "somebody.db").exists()

    usual = said.replace(str(tmp_path / "demo"), "build/demo").replace(str(Path(sys.executable).parent), ".venv/bin")
    [excerpt] = re.findall(r"^```text\n(5  Edits.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [plain(line) for line in excerpt.splitlines() if line and line != "  ..."]
    assert [line for line in lines if line not in map(plain, usual.splitlines())] == []

    followed = {line.split()[1]: run(*shlex.split(line), environment=os.environ.copy()) for line in commands(said)}
    assert {name: (each.returncode, each.stderr) for name, each in followed.items()} == dict.fromkeys(
        ("explain", "stuck"), (0, "")
    )
    assert "push_person -> people: synced" in followed["explain"].stdout
    assert followed["stuck"].stdout == "Nothing waits for a person.\n"


def commands(said: str) -> list[str]:
    """What the demo names to look at next."""
    return [line for line in said.partition("What to look at next:")[2].splitlines() if line]


@pytest.mark.timeout(120)
def test_a_difference_is_told_and_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remote whose last record was changed behind the back of both is not called equal."""
    monkeypatch.syspath_prepend(DEMO)
    for name in [name for name in os.environ if name.startswith("PUSHLINK_")]:
        monkeypatch.delenv(name)  # the demo takes them out of its process, which is this one
    monkeypatch.setattr(sys, "argv", ["run.py", "--folder", str(tmp_path / "demo")])
    import sides

    plain = sides.Remote.get

    def tampered(remote: sides.Remote, path: str) -> Any:
        answer = plain(remote, path)
        if path == "/people":
            answer[-1]["name"] = "Eve"
        return answer

    monkeypatch.setattr(sides.Remote, "get", tampered)
    assert runpy.run_path(str(DEMO / "run.py"))["main"]() == 1
    said = capsys.readouterr().out
    assert "Person 17, name: 'Hedy Lamarr' here, 'Eve' there" in said
    assert "VERDICT: DIFFERENT: 1 differences in 279 records" in said


def test_the_witness_sees_every_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost record, a foreign one, a changed value and a null in place of a value that is left out are all told."""
    monkeypatch.syspath_prepend(DEMO)
    from crm import Person
    from witness import differences, expected

    ada = Person(id=1, full_name="Ada", email=" A@B.org", status="lead", remote_id="7")
    eve = Person(id=2, full_name="Eve", status="customer", remote_id="8")
    same = expected(ada)
    assert same == {"id": 7, "name": "Ada", "email": "a@b.org", "born_on": None, "stage": "prospect", "origin": "crm"}
    assert list(differences("Person", [ada], [same])) == []
    told = list(differences("Person", [ada, eve], [{**same, "name": "Eda", "details": None}, {"id": 9}]))
    assert told == [
        "Person 1, details: None here, None there",
        "Person 1, name: 'Ada' here, 'Eda' there",
        "Person 2 has no remote record 8",
        "remote record 9 of Person belongs to nobody here",
    ]
