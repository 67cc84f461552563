"""Every stable code in one sentence, with what to do next: the text behind `explain`, errors and `docs/errors.md`.

The table is complete and in the order of `errors.Code`; a test compares it with the enumeration and the page with it.
A next step that does not depend on the case at hand stands here, one that does is part of the error itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pushlink.errors import Code


@dataclass(frozen=True, slots=True)
class Reason:
    """What a code says, and what usually follows."""

    sentence: str
    next_step: str


_C = Code

REASONS: Final[Mapping[Code, Reason]] = {
    # Gates before a create or an update.
    _C.SLOT_UNRESOLVED: Reason(
        "No installed pack has an action for this object.", "Apply a pack that has one: `pushlink pack apply FILE`."
    ),
    _C.OWNER_UNRESOLVED: Reason(
        "The owner key or a slot of the action cannot be resolved from the installed packs.",
        "Apply the pack that owns the slot; a name never takes the place of an id.",
    ),
    _C.AUTHORITY_UNAVAILABLE: Reason(
        "No authority of the saving user can be established.",
        "Save as a user whom the policy knows and who is active.",
    ),
    _C.INSTALL_UNUSABLE: Reason(
        "The action does not resolve to exactly one usable install and profile.",
        "See `pushlink pack list`; apply the pack, or activate its profile.",
    ),
    _C.MAPPING_UNUSABLE: Reason(
        "The mappings of the action are absent, customized or duplicated, or make no body.",
        "Mend the pack: `pushlink pack check FILE`.",
    ),
    _C.PATH_UNUSABLE: Reason(
        "The path of the action is missing from the pack, or cannot be used.",
        "Mend the pack: `pushlink pack check FILE`.",
    ),
    _C.READ_DENIED: Reason(
        "The saving user may not read the record, or a field that the mappings need.",
        "Save as another user, or open the fields in the policy.",
    ),
    _C.SOURCE_GONE: Reason(
        "The local record does not exist any more.", "Nothing; what was never sent has ended, the rest is kept."
    ),
    _C.LINK_EXISTS: Reason(
        "The record owns a remote record already, so no other one is created.", "Save it again: it is updated."
    ),
    _C.LINK_SUSPENDED: Reason(
        "The link is suspended: what it points to, or its configuration, is in question.",
        "Look at `pushlink explain`; somebody has to revalidate, relocate or retire it.",
    ),
    _C.LINK_RETIRED: Reason(
        "The link is retired and its slot is closed: this record is not pushed any more.",
        "Release the slot if another remote record is wanted.",
    ),
    _C.LINK_MISSING: Reason("The record has no link to update.", "Save the record: it is created then."),
    _C.CREATE_ACTIVE: Reason(
        "A create of this record is under way.", "Wait for it; the newer values follow as one update."
    ),
    _C.CREATE_AMBIGUOUS: Reason(
        "A create of this record may have been applied, and nobody knows.",
        "Look the record up at the remote, then reconcile; until then nothing is sent.",
    ),
    _C.CREATE_TERMINAL: Reason(
        "A create of this record failed for good and still holds its place.",
        "Mend the cause, then supersede the attempt.",
    ),
    _C.LINEAGE_UNRESOLVED: Reason(
        "Older slots of this object still own links or attempts.",
        "Rebind, retire or supersede them, or declare the new slot independent.",
    ),
    _C.FREEZE_FAILED: Reason(
        "A snapshot that the request needs cannot be made.", "See `pushlink doctor`; often a credential is missing."
    ),
    _C.ROUTE_UNSAFE: Reason(
        "A rendered value would change where the request goes.", "Correct the value, or the pack's rule for ids."
    ),
    _C.VALUE_UNSENDABLE: Reason(
        "A value cannot be said exactly in the way its mapping asks for.",
        "Correct the record's value, or the mapping's encoding.",
    ),
    _C.BODY_TOO_LARGE: Reason(
        "The body is larger than the profile allows.", "Shorten the record, or raise the profile's limit."
    ),
    _C.DRIFT: Reason(
        "The configuration differs from the one that the link or attempt was made with.",
        "Undo the change, or revalidate after looking at it.",
    ),
    _C.UPDATE_AMBIGUOUS: Reason(
        "An earlier update may have been applied, and nobody knows.",
        "Compare with the remote record, then settle it; until then no update is sent.",
    ),
    _C.VERSION_REFUSED: Reason(
        "The remote refused exactly these values before.", "Change the record, or release the refused version."
    ),
    _C.ASSOCIATION_MISSING: Reason(
        "A record that this one refers to has no remote record.", "Save the other record first."
    ),
    _C.ASSOCIATION_DENIED: Reason(
        "The saving user may not read a record that this one refers to.", "Save as a user who may."
    ),
    _C.ASSOCIATION_CYCLE: Reason(
        "Records that are to be created wait for each other in a circle.",
        "Break the circle in the records, or the pack.",
    ),
    _C.RECOVERY_MODE: Reason(
        "The deployment is in recovery mode: nothing is sent until somebody confirms its database.",
        "See `pushlink doctor`, then confirm the deployment.",
    ),
    # Why an attempt is parked, ended or put back.
    _C.EFFECT_UNKNOWN: Reason(
        "A request was sent and its effect is not known.", "Look the record up at the remote, then reconcile."
    ),
    _C.APPLIED_UNIDENTIFIED: Reason(
        "The remote said that it was done and named no id that can be read.",
        "Find the record at the remote and adopt its id; then mend the pack's id rule.",
    ),
    _C.ACCEPTED_PENDING: Reason(
        "The remote accepted the request and works on it.", "Look again later; the id is not known yet."
    ),
    _C.LEASE_EXPIRED: Reason(
        "The worker that had this attempt did not come back.",
        "Nothing when it is pending again; when it is in doubt, reconcile.",
    ),
    _C.TIMELINE_CHANGED: Reason(
        "The database was restored or failed over while this attempt was in work.",
        "Look the record up at the remote, then reconcile.",
    ),
    _C.REPLAY_NOT_ALLOWED: Reason(
        "An earlier send is in doubt and no live contract covers another one.",
        "Look the record up at the remote, then reconcile.",
    ),
    _C.REPLAY_EXPIRED: Reason(
        "An earlier send is in doubt, and the contract under which it could be sent again is over.",
        "Look the record up at the remote, or let the pack's look-up do it, then reconcile.",
    ),
    _C.KEY_MISMATCH: Reason(
        "The remote has another body for the key of this create: something was changed, or the key was used twice.",
        "Report it as a defect; look the record up at the remote, then reconcile.",
    ),
    _C.KEY_IN_FLIGHT: Reason(
        "The remote is still at work on an earlier send with this key.",
        "Nothing while it is pending; when it is in doubt, reconcile.",
    ),
    _C.LOOKUP_SHOWS_SEVERAL: Reason(
        "Several remote records carry the stamp of this create.",
        "Compare them at the remote, remove all but one, and adopt that one.",
    ),
    _C.LOOKUP_IN_VAIN: Reason(
        "The record was looked for by its stamp as long as the pack says, and was not found.",
        "Look at the remote, then adopt its id or confirm that it is absent.",
    ),
    _C.REMOTE_REJECTED: Reason(
        "The remote refused the request for good; nothing was applied.", "Read its answer, mend the cause, then go on."
    ),
    _C.REMOTE_CONFLICT: Reason(
        "The remote says that this clashes with what it has.",
        "Compare with the remote record; adopt its id if it is ours.",
    ),
    _C.REMOTE_GONE: Reason(
        "The remote record is gone.", "Decide: retire the link, or relocate it to the record that took its place."
    ),
    _C.REMOTE_CHANGED: Reason("Somebody else changed the remote record.", "Compare, then revalidate the link."),
    _C.RETRIES_EXHAUSTED: Reason("All tries are used up.", "Mend the cause; a person lets it go on."),
    _C.THROTTLED: Reason("The remote asked to wait.", "Nothing; it is tried again at the time that is shown."),
    _C.NOT_SENT: Reason(
        "No byte of the request left this machine.", "Nothing; it is tried again. If it stays, see the network."
    ),
    _C.CERTIFICATE_UNTRUSTED: Reason(
        "The remote's certificate is not trusted, so nothing was sent.",
        "Compare it with what the remote's owner says, and name its authority in `egress.ca_file`; nothing more: it is "
        "tried again every five minutes.",
    ),
    _C.NOT_APPLIED: Reason("The remote says that nothing was applied.", "Nothing; it is tried again."),
    _C.UNAUTHENTICATED: Reason(
        "The remote does not accept the credential.", "Mend the credential; see `pushlink doctor`."
    ),
    _C.LOCATOR_CONFLICT: Reason(
        "Another link owns the remote record that the answer named.",
        "Compare both records; retire one of the links, or dispose of the id.",
    ),
    _C.MIRROR_FAILED: Reason(
        "The remote id is safe, but could not be written into the record's fields yet.", "Nothing; it is tried again."
    ),
    _C.ABANDONED: Reason(
        "Somebody ended the attempt before it was sent.", "Supersede it to create the record after all."
    ),
    _C.CONFIRMED_ABSENT: Reason(
        "Somebody confirmed that the remote has no such record.", "Supersede the attempt to create it again."
    ),
    _C.DISPOSED: Reason(
        "Somebody set the known remote id aside as evidence.", "Supersede the attempt if one is still wanted."
    ),
    _C.OPERATOR_DECISION: Reason("Somebody decided so; the history says who and why.", "Nothing, or decide otherwise."),
    _C.GIVEN_BACK: Reason("The claim was given back before anything was sent.", "Nothing; it is claimed again."),
    _C.OUTDATED: Reason("A newer version, or time, has overtaken this one.", "Nothing, or save the record again."),
    _C.STALE_MAPPING: Reason(
        "The wanted values were frozen under a mapping that does not hold any more.", "Save the record again."
    ),
    _C.SAME_AS_APPLIED: Reason("The remote has exactly these values already.", "Nothing."),
    _C.BODY_UNREADABLE: Reason(
        "A sealed content cannot be read: its key is missing, it was changed, or it was erased.",
        "Give the workers the key, or save the record again; what may have been sent is reconciled.",
    ),
    # Callers, configuration and dependencies.
    _C.CALLER_MISTAKE: Reason("The call itself is wrong.", "Correct it; the message says what."),
    _C.OBJECT_UNKNOWN: Reason(
        "No source object of this name is declared.", "Declare it in the settings, or mend the name."
    ),
    _C.RECORD_ID_UNUSABLE: Reason(
        "This is no id of the type that the object declares.", "Give the id as the object's key type has it."
    ),
    _C.RECORD_UNKNOWN: Reason("Nothing is known about this record.", "Save it: `pushlink save OBJECT ID --user USER`."),
    _C.STALE_VERSION: Reason("The row has changed since it was looked at.", "Look at it again, then decide."),
    _C.NOT_ALLOWED_NOW: Reason("This cannot be done in the state that the row is in.", "See `pushlink explain`."),
    _C.TOKEN_REFUSED: Reason(
        "A decision needs the token of a usable principal.", "Set PUSHLINK_TOKEN, or name a file with `--token-file`."
    ),
    _C.NOT_PERMITTED: Reason(
        "The principal's role or tenant does not allow this.", "Let a principal with that role do it."
    ),
    _C.SETTINGS_INVALID: Reason(
        "The settings do not hold.", "Correct the file that the message names; see `pushlink doctor`."
    ),
    _C.POLICY_INVALID: Reason("The policy file has something to mend.", "Correct it at the places that are listed."),
    _C.PACK_INVALID: Reason(
        "The pack has something to mend, or the slot registry refuses it.", "Run `pushlink pack check FILE`."
    ),
    _C.TABLE_PROTECTED: Reason(
        "The table is one of pushlink's own and holds no source records.", "Declare a table of the application."
    ),
    _C.SCHEMA_OUTDATED: Reason(
        "The database's tables are not those of this release.", "Run `pushlink db upgrade`, or the newer release."
    ),
    _C.DURABILITY_WEAKENED: Reason(
        "The database may lose what it said was committed.", "Set what the message names, then start again."
    ),
    _C.CREDENTIAL_UNAVAILABLE: Reason(
        "A credential that a profile names is not there.", "Set the variable or write the file that it names."
    ),
    _C.TRANSPORT_UNSAFE: Reason(
        "The transport would send, or reach, what it must not.", "Correct the profile, or the egress settings."
    ),
    _C.PROTOCOL_VIOLATION: Reason(
        "A promise of the protocol does not hold: a defect.", "Report it with the evidence; nothing was written."
    ),
    _C.UNAVAILABLE: Reason(
        "Something that is needed does not answer; nothing was decided.", "Try again; see `pushlink doctor`."
    ),
    _C.CONTENDED: Reason("The transaction lost a race that only a new one can win.", "Roll it back and run it again."),
}


#: Reasons for which a row may stand until a person decides; `docs/operations.md` has a section for each of them.
PARKING: Final = frozenset(
    {
        _C.EFFECT_UNKNOWN,
        _C.APPLIED_UNIDENTIFIED,
        _C.ACCEPTED_PENDING,
        _C.LEASE_EXPIRED,
        _C.TIMELINE_CHANGED,
        _C.REPLAY_NOT_ALLOWED,
        _C.REPLAY_EXPIRED,
        _C.KEY_MISMATCH,
        _C.KEY_IN_FLIGHT,
        _C.LOOKUP_SHOWS_SEVERAL,
        _C.LOOKUP_IN_VAIN,
        _C.REMOTE_REJECTED,
        _C.REMOTE_CONFLICT,
        _C.REMOTE_GONE,
        _C.REMOTE_CHANGED,
        _C.RETRIES_EXHAUSTED,
        _C.UNAUTHENTICATED,
        _C.LOCATOR_CONFLICT,
        _C.ABANDONED,
        _C.CONFIRMED_ABSENT,
        _C.DISPOSED,
        _C.OPERATOR_DECISION,
        _C.SOURCE_GONE,
        _C.DRIFT,
        _C.STALE_MAPPING,
        _C.LINK_RETIRED,
        _C.ASSOCIATION_MISSING,
        _C.LINEAGE_UNRESOLVED,
        _C.RECOVERY_MODE,
    }
)


def reason_of(code: str) -> Reason:
    """The reason behind a code as rows keep it; a word of a later release is shown as it is."""
    try:
        return REASONS[Code(code)]
    except ValueError:
        return Reason(f"This release does not know the reason {code!r}.", "Run the release that wrote it.")
