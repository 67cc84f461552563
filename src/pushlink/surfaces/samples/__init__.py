"""What `pushlink init` writes: settings, a policy and a pack to begin with, about notes.

The texts are files beside this one, with `$places`; what depends on a database's kind stands in them, not in code.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Final

SETTINGS_NAME: Final = "pushlink.toml"
SECRET_NAME: Final = "pushlink.secret"  # noqa: S105 - the name of a file
POLICY_NAME: Final = "policy.yaml"
PACK_NAME: Final = "packs/notes.yaml"
CASES_NAME: Final = "packs/cases/notes.yaml"

#: Bytes of a fresh deployment secret, before they are written in hexadecimal.
SECRET_BYTES: Final = 32

AUTHORITY_POLICY: Final = 'kind = "policy"\nfile = "policy.yaml"'
AUTHORITY_ALLOW_ALL: Final = (
    'kind = "allow_all"   # every named user may read everything: for an installation with one user'
)


def settings(*, database_url: str, authority: str) -> str:
    """The settings file; both values are as TOML has them."""
    return _filled("pushlink.toml.txt", {"database_url": database_url, "authority": authority})


def default_database_url(home: str) -> str:
    """The address of a database file in the deployment's directory."""
    return _filled("database_url.txt", {"home": home}).strip()


def policy() -> str:
    """A policy with one user who may read every note."""
    return _filled("policy.yaml.txt", {})


def pack(*, owner: str, destination: str, action: str) -> str:
    """A pack with one action, under fresh ids."""
    return _filled("notes.yaml.txt", {"owner": owner, "destination": destination, "action": action})


def cases() -> str:
    """What that pack sends, and how it reads recorded answers."""
    return _filled("cases.yaml.txt", {})


def _filled(name: str, places: Mapping[str, str]) -> str:
    return Template((files(__name__) / name).read_text(encoding="utf-8")).substitute(places)
