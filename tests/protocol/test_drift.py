from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from protocol.examples import NAMES, action, profile
from pushlink.protocol.contracts import Waivers
from pushlink.protocol.drift import (
    MATRIX,
    ROW_OF,
    AttemptVerdict,
    DriftFacts,
    LinkVerdict,
    blocks_new_create,
    classify,
    holds_create,
    stops_update,
    strictest,
    suspends_link,
)
from pushlink.protocol.fingerprints import fingerprints
from pushlink.protocol.snapshots import Digest
from pushlink.protocol.surfaces import FIELD_ROWS, Surface

L, A, S = LinkVerdict, AttemptVerdict, Surface

FROZEN = DriftFacts(
    owner_key="owner",
    action_slot_id="action-1",
    destination_slot_id="destination-1",
    install_id="install-1",
    names=NAMES,
    profile_active=True,
    credential_generation="1",
    fingerprints=fingerprints(action(), profile()),
    address=("https://api.example.com/v1", "/things/{remote_id}"),
)


def named(**names: str) -> DriftFacts:
    return replace(FROZEN, names=replace(NAMES, **names))


def printed(surface: Surface) -> DriftFacts:
    return replace(FROZEN, fingerprints={**FROZEN.fingerprints, surface: Digest("other1:0")})


def seen(surface: Surface) -> DriftFacts:
    return replace(FROZEN, seen=frozenset({surface}))


#: One way to reach each row: rule, surface, facts of now, and what the contract says for link and create attempt.
ROWS: list[tuple[str, Surface, DriftFacts, LinkVerdict, AttemptVerdict]] = [
    ("DR-01", S.FLOW_VERSION, named(flow_version="2"), L.USABLE, A.FROZEN),
    ("DR-02", S.FLOW_ACTION_NAME, named(flow="Other"), L.REFRESH_NAMES, A.FROZEN),
    ("DR-02", S.FLOW_ACTION_NAME, named(action="other"), L.REFRESH_NAMES, A.FROZEN),
    ("DR-03", S.ACTION_SLOT, replace(FROZEN, action_slot_id="action-2"), L.SUSPEND, A.HOLD),
    ("DR-03", S.ACTION_SLOT, replace(FROZEN, action_slot_id=None), L.SUSPEND, A.HOLD),
    ("DR-04", S.NAMESPACE, named(namespace="other"), L.REFRESH_NAMES, A.FROZEN),
    ("DR-05", S.OWNER_MISSING, replace(FROZEN, owner_key=None), L.REFUSE, A.HOLD),
    ("DR-05", S.OWNER_CHANGED, replace(FROZEN, owner_key="other"), L.SUSPEND, A.HOLD),
    ("DR-06", S.PACK_INSTALL, replace(FROZEN, install_id="install-2"), L.REFUSE, A.HOLD),
    ("DR-07", S.PROFILE_NAME, named(profile="other"), L.REFRESH_NAMES, A.FROZEN),
    ("DR-08", S.PROFILE_INACTIVE, replace(FROZEN, profile_active=False), L.REFUSE, A.HOLD),
    ("DR-08", S.PROFILE_RECREATED, replace(FROZEN, destination_slot_id="destination-2"), L.SUSPEND, A.HOLD),
    ("DR-09", S.CREDENTIAL_REF, printed(S.CREDENTIAL_REF), L.REFUSE, A.HOLD),
    ("DR-10", S.ENDPOINT, printed(S.ENDPOINT), L.REFUSE, A.HOLD),
    ("DR-11", S.CREDENTIAL_GENERATION, replace(FROZEN, credential_generation="2"), L.REFUSE, A.HOLD),
    ("DR-12", S.RETRY_POLICY, printed(S.RETRY_POLICY), L.USABLE, A.FROZEN),
    ("DR-13", S.MAPPING, printed(S.MAPPING), L.REFUSE, A.FROZEN),
    ("DR-13", S.BODY, printed(S.BODY), L.REFUSE, A.FROZEN),
    ("DR-14", S.PERMISSION, seen(S.PERMISSION), L.REFUSE, A.FROZEN),
    ("DR-14", S.USER_DEACTIVATED, seen(S.USER_DEACTIVATED), L.NONE, A.HOLD),
    ("DR-15", S.CREATE_PATH, printed(S.CREATE_PATH), L.USABLE, A.FROZEN),
    ("DR-16", S.UPDATE_PATH, printed(S.UPDATE_PATH), L.REFUSE, A.FROZEN),
    ("DR-17", S.RESPONSE, printed(S.RESPONSE), L.USABLE, A.FROZEN),
    ("DR-18", S.MIRROR, printed(S.MIRROR), L.MIRROR_BLOCKED, A.FROZEN),
    ("DR-19", S.TARGET_OBJECT_NAME, named(target_object="other"), L.REFUSE, A.FROZEN),
    ("DR-19", S.DESTINATION, printed(S.DESTINATION), L.REFUSE, A.FROZEN),
    ("DR-20", S.DESTINATION_SLOT, replace(FROZEN, destination_slot_id=None), L.SUSPEND, A.HOLD),
    ("DR-21", S.IDEMPOTENCY, printed(S.IDEMPOTENCY), L.USABLE, A.NARROWED),
    ("DR-22", S.SOURCE_GONE_UNSENT, seen(S.SOURCE_GONE_UNSENT), L.NONE, A.END),
    ("DR-23", S.SOURCE_GONE_KNOWN, seen(S.SOURCE_GONE_KNOWN), L.REFUSE, A.SKIP_MIRROR),
    ("DR-24", S.REMOTE_GONE, seen(S.REMOTE_GONE), L.SUSPEND, A.EVIDENCE),
    ("DR-25", S.REMOTE_CHANGED, seen(S.REMOTE_CHANGED), L.SUSPEND, A.FROZEN),
    ("DR-26", S.LOCATOR_CONFLICT, seen(S.LOCATOR_CONFLICT), L.NONE, A.HOLD_LOCATOR),
    ("DR-27", S.ORPHANED, seen(S.ORPHANED), L.NONE, A.RECOVER),
    ("DR-28", S.UNMAPPED, seen(S.UNMAPPED), L.REFUSE, A.HOLD),
]


@pytest.mark.rule("DR-28")
@pytest.mark.parametrize(("rule", "surface", "now", "link", "create"), ROWS, ids=lambda part: str(part)[:24])
def test_each_surface_that_drifts_hits_its_row_with_both_verdicts(
    rule: str, surface: Surface, now: DriftFacts, link: LinkVerdict, create: AttemptVerdict
) -> None:
    """One difference, one hit: its rule, what it means for the link and what for a create attempt."""
    (hit,) = classify(FROZEN, now)
    assert (hit.rule, hit.surface, hit.link, hit.create) == (rule, surface, link, create)


@pytest.mark.rule("DR-28")
def test_the_matrix_has_every_rule_in_order_and_every_surface_once() -> None:
    """Twenty-eight rules in the order of the contract; the test above reaches all but the compound row."""
    rules = [row.rule for row in MATRIX]
    assert rules == sorted(rules)
    assert set(rules) == {f"DR-{number:02d}" for number in range(1, 29)}
    assert [row.surface for row in MATRIX] == list(Surface)
    assert {surface for _, surface, *_ in ROWS} == set(Surface) - {S.NAMESPACE_AND_MORE}
    assert set(FIELD_ROWS.values()) <= ROW_OF.keys()


def test_nothing_drifted_hits_nothing() -> None:
    """Equal facts are usable as they are."""
    assert classify(FROZEN, FROZEN) == ()
    assert strictest(()).link is LinkVerdict.NONE


def test_what_cannot_be_resolved_is_never_equal() -> None:
    """A snapshot without a slot does not make a missing slot harmless."""
    blank = replace(FROZEN, action_slot_id=None, owner_key=None, destination_slot_id=None)
    assert {hit.rule for hit in classify(blank, blank)} == {"DR-03", "DR-05", "DR-20"}


@pytest.mark.parametrize("other", [row for row in ROWS if row[1] is not S.NAMESPACE], ids=lambda row: row[1])
def test_a_new_namespace_beside_more_than_names_refuses(
    other: tuple[str, Surface, DriftFacts, LinkVerdict, AttemptVerdict],
) -> None:
    """A renamed pack is benign only when names are all that changed."""
    now = replace(other[2], names=replace(other[2].names, namespace="other"))
    surfaces = {hit.surface for hit in classify(FROZEN, now)}
    names_only = other[1] in {S.FLOW_VERSION, S.FLOW_ACTION_NAME, S.PROFILE_NAME, S.USER_DEACTIVATED, S.ORPHANED}
    assert surfaces == {other[1], S.NAMESPACE if names_only else S.NAMESPACE_AND_MORE}


def test_a_new_namespace_beside_every_other_name_is_benign() -> None:
    """As many names as there are: still nothing but names."""
    renamed = named(namespace="other", flow_version="2", flow="Other", profile="other")
    now = replace(renamed, seen=frozenset({S.USER_DEACTIVATED, S.ORPHANED}))
    hits = {hit.surface for hit in classify(FROZEN, now)}
    assert S.NAMESPACE in hits
    assert len(hits) == 6


@pytest.mark.rule("D-26")
@pytest.mark.parametrize("waiver", ["credential_ref", "endpoint", "credential_generation"])
def test_a_waiver_holds_within_one_remote_tenant_alone(waiver: str) -> None:
    """Another declared scope is another tenant, whatever was promised; a route does not depend on it."""
    surface = {"credential_ref": S.CREDENTIAL_REF, "endpoint": S.ENDPOINT}.get(waiver, S.CREDENTIAL_GENERATION)
    here = replace(FROZEN, credential_generation="2") if waiver == "credential_generation" else printed(surface)
    elsewhere = replace(here, fingerprints={**here.fingerprints, S.DESTINATION: Digest("other1:0")})
    for now, link in ((here, L.USABLE), (elsewhere, L.REFUSE)):
        [verdict] = [hit.link for hit in classify(FROZEN, now, Waivers(**{waiver: True})) if hit.surface is surface]
        assert verdict is link
    path = replace(elsewhere, fingerprints={**elsewhere.fingerprints, S.UPDATE_PATH: Digest("other1:0")})
    hits = classify(FROZEN, path, Waivers(update_path_same_route=True))
    assert [hit.link for hit in hits if hit.surface is S.UPDATE_PATH] == [L.USABLE]


def test_every_difference_is_a_hit_and_the_strictest_decides() -> None:
    """All rows are found at once, in order; the strictest of each column speaks, with the hit that brought it."""
    now = replace(
        FROZEN,
        action_slot_id="action-2",
        install_id="install-2",
        names=replace(NAMES, flow_version="2"),
        seen=frozenset({S.SOURCE_GONE_UNSENT}),
    )
    hits = classify(FROZEN, now)
    assert [hit.rule for hit in hits] == ["DR-01", "DR-03", "DR-06", "DR-22"]
    verdict = strictest(hits)
    assert (verdict.link, verdict.create) == (L.SUSPEND, A.END)
    assert verdict.link_hit is not None
    assert verdict.create_hit is not None
    assert (verdict.link_hit.rule, verdict.create_hit.rule) == ("DR-03", "DR-22")
    assert [hit.rule for hit in stops_update(hits)] == ["DR-03", "DR-06"]
    assert [hit.rule for hit in suspends_link(hits)] == ["DR-03"]
    assert [hit.rule for hit in holds_create(hits)] == ["DR-03", "DR-06"]
    assert [hit.rule for hit in blocks_new_create(hits)] == ["DR-03"]
    assert (hits[1].frozen, hits[1].current) == ("action-1", "action-2")


def test_the_first_of_equally_strict_rows_names_the_reason() -> None:
    """Two refusals and two holds: the earlier row of the matrix is shown."""
    verdict = strictest(classify(FROZEN, replace(FROZEN, install_id="install-2", profile_active=False)))
    assert verdict.link_hit is not None
    assert verdict.create_hit is not None
    assert (verdict.link_hit.rule, verdict.create_hit.rule) == ("DR-06", "DR-06")


@pytest.mark.parametrize(
    ("waiver", "now"),
    [
        ("credential_ref", printed(S.CREDENTIAL_REF)),
        ("endpoint", printed(S.ENDPOINT)),
        ("credential_generation", replace(FROZEN, credential_generation="2")),
    ],
)
def test_a_declared_waiver_makes_its_own_row_usable_and_no_other(waiver: str, now: DriftFacts) -> None:
    """A profile declares each harmless drift apart; a held create is freed only where the contract says so."""
    (hit,) = classify(FROZEN, now, Waivers(**{waiver: True}))
    assert hit.link is LinkVerdict.USABLE
    assert hit.create is (AttemptVerdict.FROZEN if waiver == "credential_generation" else AttemptVerdict.HOLD)
    others: dict[str, Any] = {name: True for name in Waivers.model_fields if name != waiver}
    (kept,) = classify(FROZEN, now, Waivers(**others))
    assert kept.link is LinkVerdict.REFUSE


def test_another_update_path_is_waived_only_when_it_is_the_same_route() -> None:
    """The declaration alone is not enough: both must render to one address."""
    now = printed(S.UPDATE_PATH)
    declared = Waivers(update_path_same_route=True)
    same = replace(now, address=("https://api.example.com", "/v1/things/{remote_id}"))
    other = replace(now, address=("https://api.example.com/v1", "/others/{remote_id}"))
    assert classify(FROZEN, same, declared)[0].link is LinkVerdict.USABLE
    assert classify(FROZEN, other, declared)[0].link is LinkVerdict.REFUSE
    assert classify(FROZEN, same)[0].link is LinkVerdict.REFUSE


@pytest.mark.rule("DR-28")
def test_a_surface_without_a_row_fails_closed() -> None:
    """A fingerprint that only one side has, or that nobody knows, refuses the link and holds the create."""
    unknown = replace(FROZEN, fingerprints={**FROZEN.fingerprints, "surface_of_tomorrow": Digest("x1:0")})  # type: ignore[dict-item]
    for frozen, now in itertools.permutations((FROZEN, unknown), 2):
        (hit,) = classify(frozen, now)
        assert (hit.surface, hit.link, hit.create) == (S.UNMAPPED, L.REFUSE, A.HOLD)
    missing = {surface: digest for surface, digest in FROZEN.fingerprints.items() if surface is not S.MAPPING}
    assert classify(replace(FROZEN, fingerprints=missing), FROZEN)[0].link is LinkVerdict.REFUSE


def test_a_profile_that_was_made_again_is_told_from_another_destination() -> None:
    """Another slot under the old names is DR-08; with another target object it is DR-20. Both suspend."""
    moved = replace(FROZEN, destination_slot_id="destination-2", names=replace(NAMES, target_object="others"))
    assert {hit.surface for hit in classify(FROZEN, moved)} == {S.DESTINATION_SLOT, S.TARGET_OBJECT_NAME}
    assert strictest(classify(FROZEN, moved)).link is LinkVerdict.SUSPEND


def test_an_attempt_that_knows_its_id_writes_back_where_the_row_says_so() -> None:
    """Exactly the rows of lost or changed authority let a known id go on to its mirror."""
    assert [row.surface for row in MATRIX if row.writes_back] == [
        S.ACTION_SLOT,
        S.OWNER_MISSING,
        S.OWNER_CHANGED,
        S.PACK_INSTALL,
        S.PROFILE_INACTIVE,
        S.PROFILE_RECREATED,
        S.CREDENTIAL_REF,
        S.ENDPOINT,
        S.CREDENTIAL_GENERATION,
    ]


@pytest.mark.rule("DR-15")
def test_another_create_waits_where_its_slot_or_its_path_is_another_one() -> None:
    """Or where nobody can say what a difference means."""
    assert [row.surface for row in MATRIX if row.blocks_new_create] == [
        S.ACTION_SLOT,
        S.PROFILE_RECREATED,
        S.CREATE_PATH,
        S.DESTINATION_SLOT,
        S.UNMAPPED,
    ]
