"""The rules of lint as a table, and what a check finds. The checks themselves are in `lint.py` and beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from pushlink.errors import Finding
from pushlink.packs.tree import Steps


class Severity(StrEnum):
    """An error stops `pack apply`; a warning is shown."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding(Finding):
    """A finding with the stable name of its rule."""

    rule: str
    severity: Severity

    def __str__(self) -> str:
        return f"{Finding.__str__(self)} [{self.rule}]"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: the stable name, what it does to a pack, and what it says."""

    name: str
    severity: Severity
    says: str


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

#: Every rule, errors first.
RULES: Final = (
    Rule("duplicate-slot", _ERROR, "A slot id stands for one action or one destination, and is written once."),
    Rule("unknown-destination", _ERROR, "An action's destination is one of the pack's destination slot ids."),
    Rule("unknown-profile", _ERROR, "A destination's profile is one of the pack's profiles."),
    Rule("base-url", _ERROR, "A base URL is scheme, host, port and path, and nothing else."),
    Rule("credential-ref", _ERROR, "A credential is named by env: or file:, never written."),
    Rule("credential-missing", _ERROR, "A profile that sends a credential names it."),
    Rule("auth", _ERROR, "Each key of `auth` belongs to one kind, and an API key has a name."),
    Rule("secret-literal", _ERROR, "No secret stands in a header, a constant or an envelope."),
    Rule(
        "header",
        _ERROR,
        "Headers are visible ASCII or known variables, and none frames, authenticates or repeats a request.",
    ),
    Rule("timeouts", _ERROR, "Connecting takes some time, and no more than the whole call."),
    Rule("backoff", _ERROR, "The first delay is no longer than the longest."),
    Rule("path-characters", _ERROR, "Only characters that can change a route are listed as safe in ids."),
    Rule("path", _ERROR, "A path is relative, plain, and has the variables of its operation and profile."),
    Rule("query", _ERROR, "A parameter is a literal or one variable that is known where it stands."),
    Rule("variables", _ERROR, "A profile's variables have names of their own, and values that may stand in a path."),
    Rule("prefer", _ERROR, "A preference does not take the id from where it is read."),
    Rule("client-id", _ERROR, "An id that a create makes itself has a source, and stands in its request."),
    Rule("session", _ERROR, "A session says what it captures, and which refusals mean that it is over."),
    Rule("precondition", _ERROR, "A precondition has all of its parts, and a version that somebody reads."),
    Rule("association", _ERROR, "An association means another action of the pack, and stands somewhere in a request."),
    Rule("merge", _ERROR, "What is merged into a body is known in the operation, and nothing else writes there."),
    Rule("graphql", _ERROR, "A GraphQL body has one document, which declares every variable that is sent."),
    Rule("success-empty", _ERROR, "An operation has at least one status that means done."),
    Rule("graphql-assert", _ERROR, "A GraphQL operation asserts something: its status says nothing."),
    Rule("id-missing", _ERROR, "A create says where the id of the new record stands."),
    Rule("id-source", _ERROR, "An id comes from the body or from a header of the response."),
    Rule("id-pattern", _ERROR, "A pattern is short, anchored, and cannot run away; in an extractor it has one group."),
    Rule("composite-id", _ERROR, "An id has several parts, or one."),
    Rule("criterion", _ERROR, "A criterion looks at one place, and can be tested."),
    Rule(
        "override",
        _ERROR,
        "What may have been applied is not applied only by its status and its body; a 401 is never read otherwise.",
    ),
    Rule("look-up", _ERROR, "A look-up asks by a job or by a key, and takes no one of several records."),
    Rule("idempotency", _ERROR, "A key has one place of its own, and everything that the remote asks for with it."),
    Rule("repeat", _ERROR, "A repeat converges on a record that the create itself named, in one way."),
    Rule("stamp", _ERROR, "What is found or adopted by itself carries our own stamp."),
    Rule("lifetime", _ERROR, "A contract lasts longer than its margin and one whole call."),
    Rule("sandbox", _ERROR, "A sandbox is another place than the profile's own."),
    Rule("wait", _ERROR, "A wait has one source, in a unit that fits it."),
    Rule(
        "limits", _ERROR, "A burst has a rate, a shared limit something to share it by, a circuit a window and a pause."
    ),
    Rule("ordering", _ERROR, "An ordering by a field names the field, and another one none."),
    Rule("update-guard", _ERROR, "An update that may create a missing record is guarded by a precondition."),
    Rule("media-type", _ERROR, "A media type has the form type/subtype."),
    Rule("envelope", _ERROR, "Every target finds an empty place in the envelope."),
    Rule("no-body", _ERROR, "Every operation has at least one mapping."),
    Rule("mapping-value", _ERROR, "A mapping has a source or a constant, and not both."),
    Rule("mapping-operations", _ERROR, "A mapping is for at least one operation, and names each once."),
    Rule(
        "overlapping-targets", _ERROR, "No two mappings of one operation write the same place, or one inside the other."
    ),
    Rule("encode", _ERROR, "An encoding converts once, by a form that every machine writes alike."),
    Rule("sentinel", _ERROR, "A sentinel is a value, and is written where it clears."),
    Rule("mirror", _ERROR, "The mirror's fields differ, belong together, and are not pushed themselves."),
    Rule("empty-test", _ERROR, "A condition or criterion says what it tests."),
    Rule("lifetime-unknown", _WARNING, "A contract says how long the remote remembers it; unknown is 15 minutes."),
    Rule("plain-http", _WARNING, "Outside of this machine and private networks, requests travel encrypted."),
    Rule("credential-unused", _WARNING, "A credential that is named is also sent."),
    Rule("unused-profile", _WARNING, "Every profile has a destination."),
    Rule("unused-destination", _WARNING, "Every destination has an action."),
    Rule("same-place", _WARNING, "Two destinations are two places: the owner of a remote id is looked up within one."),
    Rule("shared-mirror", _WARNING, "Two actions of one source object do not write the same mirror field."),
    Rule("bodiless-success", _WARNING, "A success without a body does not leave the id unread."),
    Rule("replace-erases", _WARNING, "An update that replaces the record sends every field that the create sent."),
    Rule("form-values", _WARNING, "A form has no null and no empty list, so nothing in it may become one."),
    Rule("key-quoting", _WARNING, "A key that is quoted stands in the path."),
    Rule("unused-mapping", _WARNING, "A mapping's operation exists."),
)

RULES_BY_NAME: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}
RULE_ORDER: Final[Mapping[str, int]] = {rule.name: index for index, rule in enumerate(RULES)}


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that does not hold, where, and what to do about it."""

    rule: str
    steps: Steps
    message: str


Hits: TypeAlias = Iterator[Hit]
