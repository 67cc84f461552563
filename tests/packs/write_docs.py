"""Writes the tables of docs/packs.md from the code: `python tests/packs/write_docs.py`. A test compares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pushlink.packs.lint import RULES
from pushlink.packs.reference import MEANINGS, key_rows, title

PAGE = Path(__file__).parents[2] / "docs" / "packs.md"


def tables() -> Iterator[tuple[str, str]]:
    """Each marked part of the page, by its mark."""
    parts = []
    for model in MEANINGS:
        rows = [f"| `{row.key}` | {row.type} | {row.default} | {row.meaning} |" for row in key_rows(model)]
        parts.append(
            "\n".join([f"### {title(model)}", "", "| key | type | default | meaning |", "|---|---|---|---|", *rows])
        )
    yield "keys", "\n\n".join(parts)
    rules = [f"| `{rule.name}` | {rule.severity} | {rule.says} |" for rule in RULES]
    yield "rules", "\n".join(["| rule | severity | what holds |", "|---|---|---|", *rules])


def written(page: str) -> str:
    """The page with its tables as the code has them."""
    for mark, table in tables():
        between = re.compile(rf"(<!-- {mark}: from the code -->\n).*?(\n<!-- end of {mark} -->)", re.DOTALL)
        if not between.search(page):
            raise ValueError(mark)
        page = between.sub(lambda match, text=table: match[1] + "\n" + text + "\n" + match[2], page)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
