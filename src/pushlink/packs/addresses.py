"""Addresses with variables in them: `https://{region}.api.example.com` for each account of a remote.

They are filled once, when the file is read: what is linted, frozen, compared and connected is a whole address, and
another value of a variable is another endpoint like any other change of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pushlink.packs.model import Pack
from pushlink.protocol.contracts import ProfileContract

_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill_addresses(pack: Pack) -> Pack:
    """The pack with the variables of its base URLs filled; one that nobody knows stays, and is no address."""
    return pack.model_copy(update={"profiles": {name: _filled(profile) for name, profile in pack.profiles.items()}})


def _filled(profile: ProfileContract) -> ProfileContract:
    changed: dict[str, object] = {"base_url": _whole(profile.base_url, profile.variables)}
    if (sandbox := profile.sandbox) is not None:
        url = _whole(sandbox.base_url, {**profile.variables, **sandbox.variables})
        changed["sandbox"] = sandbox.model_copy(update={"base_url": url})
    return profile.model_copy(update=changed)


def _whole(url: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), url)
