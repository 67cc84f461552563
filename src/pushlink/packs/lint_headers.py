"""What lint says about declared headers: their form, the variables in them, secrets, and two of one name."""

from __future__ import annotations

from collections.abc import Mapping

from pushlink.packs import grammar
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.contracts import ProfileContract
from pushlink.protocol.placeholders import name_of


def check_headers(
    steps: Steps, headers: Mapping[str, str], profile: ProfileContract | None, *, asks_for: str | None = None
) -> Hits:
    """The headers of a profile, of a request or of a call; `asks_for` is the one that is named as what it asks for."""
    seen: dict[str, str] = {}
    variables = {} if profile is None else profile.variables
    for name, literal in headers.items():
        variable = name_of(literal)
        if variable is not None and variable not in variables:
            known = ", ".join(f"{{{each}}}" for each in sorted(variables)) or "none"
            message = f"The profile has no variable `{variable}`. Known are {known}."
            yield Hit("header", (*steps, name), message)
            continue
        value = literal if variable is None else variables[variable]
        yield from (Hit("header", (*steps, name), problem) for problem in grammar.header_problems(name, value))
        is_question = asks_for is not None and name.lower() == asks_for.lower()
        if not is_question and grammar.secret_suspected(name, value):
            message = "This looks like a secret. Put it where credential_ref can find it, and remove it from the pack."
            yield Hit("secret-literal", (*steps, name), message)
        if (first := seen.setdefault(name.lower(), name)) != name:
            yield Hit("header", (*steps, name), f"`{first}` is the same header. Keep one of them.")
