"""docs/deployment.md lists every setting, with the default that the code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pushlink.packs.reference import duration_words
from pushlink.settings import Settings

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "deployment.md").read_text(encoding="utf-8")
TABLE = PAGE.split("\n## Settings\n")[1].split("\n## ")[0]
ROWS = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \| ", TABLE, flags=re.MULTILINE))

#: What the table says in words of its own: a default that is another setting, a mapping, and what `load` sets.
OWN_WORDS = {"records_database_url": "`database_url`", "objects.NAME": "none"}
NOT_WRITTEN = {"objects", "base_directory"}


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting by its dotted name. A section that the page shows as TOML has its words there."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        key = f"{prefix}{field.alias or name}"
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            if f"\n[{key}]\n" not in PAGE:
                yield from settings(inner, f"{key}.")
        elif key not in NOT_WRITTEN:
            yield key, field


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    is_duration = field.alias is not None
    return f"`{duration_words(value) if is_duration else value}`"


def test_the_page_lists_every_setting_with_its_default() -> None:
    """No more, no fewer: a setting that nobody can find out about is none."""
    wanted = {name: default_of(field) for name, field in settings(Settings)} | OWN_WORDS
    assert wanted == ROWS
