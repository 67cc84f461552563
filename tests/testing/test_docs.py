from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pushlink.testing import collection, remote, scripted, verbs
from pushlink.testing.collection import Collections, RemoteOptions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_file_in_the_page_runs(pytester: pytest.Pytester) -> None:
    """The example is a test file as it stands, and it passes."""
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (pytester.path / "test_people.py").write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=pytester.path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_every_verb_is_in_the_page() -> None:
    """And none that is not there."""
    makers = {name for name, made in vars(verbs).items() if callable(made) and name in dir(verbs) and name[0].islower()}
    made_here = {name for name in makers if getattr(vars(verbs)[name], "__module__", "") == verbs.__name__}
    named = set(re.findall(r"`([a-z_]+)\([a-z, .]*\)`", section("The script") + section("Without sockets")))
    assert made_here <= named
    assert named - made_here <= set(dir(remote.FaultyRemote)) | {"remote"}


def test_every_option_is_in_the_page() -> None:
    """As a row of the table, for all that a remote can be told."""
    told = set(re.findall(r"`([a-z_]+)`", section("The remote")))
    options = {name for name in RemoteOptions.__dataclass_fields__ if name != "id_field"}
    assert options <= told
    assert {"edit", "archive", "restore", "delete", "merge", "expire_token", "renew_token"} <= told & set(
        dir(Collections)
    )


def test_what_the_page_calls_public_says_what_it_does() -> None:
    """Every public name of the modules that tests use has a docstring."""
    for module in (collection, remote, scripted, verbs):
        for name, found in vars(module).items():
            if not name.startswith("_") and getattr(found, "__module__", "") == module.__name__:
                assert found.__doc__, f"{module.__name__}.{name}"
