"""Documents that people approve before they are applied: one canonical text, sealed with its digest.

The text of a manifest is its canonical form (RFC 8785) beside the digest of it, so what was approved is byte for byte
what is applied. It is read strictly, and everything that is wrong with it is said at once, before any row is looked at.
What a document is about is the business of the module that describes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pushlink.errors import CallerError
from pushlink.protocol.snapshots import Digest, canonical, digest_bytes

#: More members than anybody can have meant; the bound keeps a mistaken file out of memory.
MEMBERS_MAX: Final = 100_000

#: Findings that an error shows; it says how many there are.
FINDINGS_SHOWN_MAX: Final = 50

LINK_KEY: Final = re.compile(r"lk1_[0-9a-f]{64}")
SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who decided, and the digest of the text in which they said so."""

    who: str
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of document: how its content is checked, and the command that makes one."""

    name: str
    format: int
    command: str
    shape: Callable[[Mapping[str, Any]], list[str]]  # names and types, all the way down
    problems: Callable[[Mapping[str, Any]], Iterator[str]]  # what the shape lets through and nobody can mean


def approve(who: str, text: str) -> Approval:
    """An approval of a text; raises `CallerError` for one that says nothing."""
    if not text.strip():
        raise CallerError("The approval is empty.", next_step="write down who decided, and why")
    return Approval(who=who, digest=digest_bytes(text.encode()))


def write_document(content: Mapping[str, object]) -> str:
    """The text of a document: its canonical form beside its digest, and a line end."""
    return _text(canonical(content))


def read_document(kind: Kind, text: str) -> tuple[Mapping[str, Any], Digest]:
    """The content of a document and its digest; raises `CallerError` with everything that is wrong with it."""
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise _refused(kind, [f"it is no JSON document: {error}"]) from None
    except RecursionError:
        raise _refused(kind, ["it is nested too deeply"]) from None
    if said := _shape(kind, document):
        raise _refused(kind, said)
    content = document["manifest"]
    said = list(kind.problems(content))
    try:
        body = canonical(content)
    except (ValueError, RecursionError) as error:
        raise _refused(kind, [*said, f"it has no canonical form: {error}"]) from None
    if document["digest"] != _hashed(body):
        said.append("the digest is not that of the manifest")
    elif not said and text.removesuffix("\n") != _text(body).removesuffix("\n"):
        said.append("the text is not in its canonical form (RFC 8785)")
    if said:
        raise _refused(kind, said)
    return content, _hashed(body)


def parts(what: str, value: Any, wanted: Mapping[str, type]) -> Iterator[str]:
    """What differs from an object that has exactly these names, with values of these types."""
    if not isinstance(value, dict) or value.keys() != wanted.keys():
        yield f"{what} must have exactly {', '.join(wanted)}"
        return
    for name, kind in wanted.items():
        if type(value[name]) is not kind:
            yield f"{what} has a {name} of another type"


def unplain(name: str, text: str) -> Iterator[str]:
    """Authority is given in plain texts: there, trimmed, composed (NFC), and without invisible characters."""
    if not text.strip():
        yield f"{name} is empty"
    elif text != text.strip():
        yield f"{name} has blanks around it"
    elif not unicodedata.is_normalized("NFC", text):
        yield f"{name} is not in the composed form of Unicode (NFC)"
    elif any(unicodedata.category(character) in _INVISIBLE for character in text):
        yield f"{name} has characters that nobody sees"


def unplain_authority(content: Mapping[str, Any]) -> Iterator[str]:
    """The texts that every kind of document has: what it is called, why, who approved it, and for which tenant."""
    approval = content["approval"]
    yield from unplain("operation_id", content["operation_id"])
    yield from unplain("reason", content["reason"])
    yield from unplain("approval.who", approval["who"])
    if content["tenant"]:
        yield from unplain("tenant", content["tenant"])
    if not SHA256.fullmatch(approval["digest"]):
        yield "approval.digest is no digest"


def out_of_order(keys: Sequence[str]) -> Iterator[str]:
    """Members that stand twice, or not in the order of their link keys."""
    before = ""
    for place, key in enumerate(keys, 1):
        if key == before:
            yield f"member {place}: the link {key} is there twice"
        elif key < before:
            yield f"member {place}: members are not sorted by link key"
        before = key


def _shape(kind: Kind, document: Any) -> list[str]:
    said = list(parts("the document", document, {"digest": str, "manifest": dict}))
    if said:
        return said
    content = document["manifest"]
    if (content.get("kind"), content.get("format")) != (kind.name, kind.format):
        found = f"{content.get('kind')!r} of format {content.get('format')!r}"
        return [f"it is {found}; this command reads {kind.name!r} of format {kind.format}"]
    return kind.shape(content)


def _hashed(body: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(body).hexdigest())


def _text(body: bytes) -> str:
    # Canonical as well: the two names are in order.
    return f'{{"digest":"{_hashed(body)}","manifest":{body.decode()}}}\n'


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "an object has one name twice"
        raise ValueError(msg)
    return found


def _refused(kind: Kind, findings: Sequence[str]) -> CallerError:
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return CallerError(
        f"The manifest cannot be used: {findings[0]}{more}.",
        evidence={"findings": list(findings[:FINDINGS_SHOWN_MAX]), "count": len(findings)},
        next_step=f"make it anew with `{kind.command}`; a manifest is never edited",
    )
