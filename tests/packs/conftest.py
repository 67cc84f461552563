from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from packs.samples import GOOD
from pushlink.packs.loader import PackDocument, read_pack_text


@pytest.fixture
def good() -> dict[str, Any]:
    """A fresh copy of a small pack without a finding."""
    return json.loads(json.dumps(GOOD))


@pytest.fixture
def read() -> Callable[[dict[str, Any]], PackDocument]:
    """Reads a document from its JSON, which is YAML too."""
    return lambda document: read_pack_text(json.dumps(document, indent=1), file="sample.yaml")
