"""The page of the examples has a row for each of them."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_every_example_stands_on_the_page_and_no_other() -> None:
    """Files and folders of `examples/`, each once."""
    rows = re.findall(r"^\| \[`([^`]+)`\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    there = [place.name + "/" * place.is_dir() for place in EXAMPLES.iterdir() if place.name[0] not in "._"]
    assert sorted(rows) == sorted(name for name in there if name != "README.md")
