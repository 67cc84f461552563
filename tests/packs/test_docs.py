from __future__ import annotations

import re
from pathlib import Path

import pytest

from packs.write_docs import PAGE, tables, written
from pushlink.errors import PackError
from pushlink.packs.lint import RULES
from pushlink.packs.loader import read_pack, read_pack_text
from pushlink.packs.model import Pack
from pushlink.packs.reference import MEANINGS, key_rows, reachable
from pushlink.packs.tree import DEPTH_MAX

ROOT = Path(__file__).parents[2]


def test_every_model_and_key_of_a_pack_has_a_meaning_and_no_meaning_is_left_over() -> None:
    assert set(reachable(Pack)) == set(MEANINGS)
    for model, meanings in MEANINGS.items():
        assert set(meanings) == {info.alias or name for name, info in model.model_fields.items()}, model.__name__
        assert all(meaning.endswith(".") and "|" not in meaning for meaning in meanings.values()), model.__name__


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    """Run `python tests/packs/write_docs.py` after a change of the models, their meanings or the rules."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page


def test_the_page_has_each_key_and_rule_once_and_no_other() -> None:
    """Read back from the page itself: key tables, and the table of rules."""
    page = PAGE.read_text(encoding="utf-8")
    rules = re.findall(r"^\| `([a-z-]+)` \| (error|warning) \| (.+) \|$", page, re.MULTILINE)
    assert rules == [(rule.name, rule.severity, rule.says) for rule in RULES]
    keys = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", dict(tables())["keys"], re.MULTILINE)
    assert keys == [(row.key, row.type, row.default, row.meaning) for model in MEANINGS for row in key_rows(model)]


def test_the_pack_on_the_page_loads_without_a_finding() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert read_pack_text(example).findings == ()


def test_the_findings_on_the_page_are_what_people_see() -> None:
    """Each sentence that the page quotes is made by the code."""
    page = PAGE.read_text(encoding="utf-8")
    quoted = re.findall(r"^shop\.yaml:\d+:\d+: (\S+: .+)$", page, re.MULTILINE)
    (example,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    wrong = example.replace("credential_ref:", "retries: 3\n    timeouts: {connect: 5}\n    credential_ref:")
    wrong = wrong.replace("    version: 1\n", "    version: 1\n    actons: []\n")
    with pytest.raises(PackError) as caught:
        read_pack_text(wrong)
    made = {str(finding).partition(": ")[2] for finding in caught.value.findings}
    made |= {
        str(finding).partition(": ")[2] for finding in read_pack_text(example.replace("/{remote_id}", "")).findings
    }
    assert len(quoted) == 4
    assert set(quoted) == made


def test_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"more than\n{DEPTH_MAX} levels" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "packs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_have_no_finding(path: Path) -> None:
    assert read_pack(path).findings == ()
