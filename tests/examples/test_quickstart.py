"""The README's ten lines are these, they are ten, and they push."""

import ast
import os
import subprocess
import sys
from pathlib import Path

QUICKSTART = Path(__file__).resolve().parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_creates_one_remote_record_and_shows_its_id(tmp_path: Path) -> None:
    """And reaches nothing that the caller's environment names."""
    environment = {**os.environ, "PUSHLINK_DATABASE_URL": f"sqlite:///{tmp_path / 'somebody.db'}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(QUICKSTART)],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Reserved Contact 1",
        "Ada Lovelace is remote record 1; the remote holds [{'full_name': 'Ada Lovelace', 'id': 1}]",
    ]
    assert not (tmp_path / "somebody.db").exists()


def test_the_ten_lines_are_ten() -> None:
    """The function that the README quotes has ten lines below its docstring."""
    tree = ast.parse(QUICKSTART.read_text(encoding="utf-8"))
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "ten_lines"]
    first, last = function.body[1], function.body[-1]
    assert (last.end_lineno or 0) - first.lineno + 1 == 10
