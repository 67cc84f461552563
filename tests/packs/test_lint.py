"""Lint: every rule by a change that breaks it and one that does not, and what comes of findings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from packs.changes import A, Case, Document, action, mappings, profile, put
from packs.lint_cases import associations, preconditions, profiles, replays, requests, responses, slots
from packs.lint_cases import mappings as mapping_cases
from pushlink.errors import PackError
from pushlink.packs.lint import RULES, Severity, lint
from pushlink.packs.loader import PackDocument, load_pack_text, read_pack_text
from pushlink.protocol.association_calls import render_call
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import SourceValues

Reader = Callable[[Document], PackDocument]

#: In the order of a pack: where it pushes to, what it sends, what comes back, and what is special.
CASES = [
    case
    for about in (slots, profiles, requests, mapping_cases, responses, preconditions, associations, replays)
    for case in about.CASES
]
KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{CASES.index(case)}")
def test_a_rule_finds_what_breaks_it_and_nothing_near_it(case: Case, good: Document, read: Reader) -> None:
    bad = copy.deepcopy(good)
    case.bad(bad)
    found = [finding for finding in read(bad).findings if finding.rule == case.rule]
    assert found, [str(finding) for finding in read(bad).findings]
    assert {finding.path for finding in found} == {case.path} or not case.path
    assert all(finding.line and finding.column for finding in found)
    if case.good:
        case.good(good)
        assert case.rule not in {finding.rule for finding in read(good).findings}


def test_every_rule_is_broken_by_a_case_and_every_case_names_a_rule() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_sound_pack_has_no_finding(good: Document, read: Reader) -> None:
    assert read(good).findings == ()


def test_an_error_stops_a_pack_and_a_warning_does_not(good: Document, read: Reader) -> None:
    profile(good)["base_url"] = "http://api.example.com"
    document = read(good)
    assert document.errors == ()
    assert [finding.severity for finding in document.warnings] == [Severity.WARNING]
    load_pack_text(json.dumps(good))
    action(good)["update"]["path"] = "/things"
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good), file="sample.yaml")
    (finding,) = caught.value.findings
    assert str(finding).startswith("sample.yaml:1:")
    assert str(finding).endswith("[path]")


def test_what_is_wrong_for_both_operations_is_said_once(good: Document, read: Reader) -> None:
    """One mapping of two forms is one finding."""
    for operation in ("create", "update"):
        put(operation, "body", value={"encoding": "form"})(good)
    mappings({"source": "a", "target": "/a"})(good)
    assert [finding.rule for finding in read(good).findings].count("form-values") == 1


def test_a_finding_points_into_the_file(good: Document) -> None:
    text = json.dumps(good, indent=1).replace('"/things/{remote_id}"', '"/things"')
    (finding,) = read_pack_text(text).findings
    line = text.splitlines()[finding.line - 1]
    assert line[finding.column - 1 :] == '"/things"'


def test_a_pack_without_a_file_is_linted_too(good: Document, read: Reader) -> None:
    action(good)["mappings"] = []
    (first, second) = lint(read(good).pack)
    assert (first.rule, first.line, first.column, first.path) == ("no-body", 0, 0, f"{A}.mappings")
    assert second.rule == "no-body"


@pytest.mark.rule("D-24")
def test_an_update_that_may_create_a_missing_record_is_refused(good: Document) -> None:
    """Its remote would bring a deleted record back under a new identity, unless the request asks that it is there."""
    update = action(good)["update"]
    update["creates_if_missing"] = True
    with pytest.raises(PackError, match="would create a record that was deleted"):
        load_pack_text(json.dumps(good))
    update["precondition"] = {"kind": "if_match_star"}
    (guarded,) = load_pack_text(json.dumps(good)).actions()
    values = SourceValues(values={"name": "n"})
    request = render_update(guarded.contract, guarded.profile, values, "r1")
    assert not isinstance(request, RenderFailure)
    assert ("If-Match", "*") in request.headers


@pytest.mark.rule("GT-06", "SY-02")
@pytest.mark.parametrize("name", ["name", "Thing.name", "record.url", "source", "base_url", "tenant"])
@pytest.mark.parametrize("operation", ["create", "update"])
def test_no_field_of_a_record_can_stand_in_a_route(good: Document, operation: str, name: str) -> None:
    action(good)[operation]["path"] = f"/things/{{{name}}}/{{remote_id}}"
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good))
    assert f"{A}.{operation}.path" in {finding.path for finding in caught.value.findings}


@pytest.mark.rule("GT-06")
@pytest.mark.parametrize("operation", ["create", "update"])
def test_a_pack_without_a_path_does_not_load(good: Document, operation: str) -> None:
    """The template is missing from the action: there is no default, and no other place to take one from."""
    del action(good)[operation]["path"]
    with pytest.raises(PackError, match="`path` is missing"):
        load_pack_text(json.dumps(good))


@pytest.mark.rule("GT-05")
@pytest.mark.parametrize("rule", ["no-body", "overlapping-targets"])
def test_mappings_that_are_absent_or_doubled_are_refused(rule: str, good: Document) -> None:
    action(good)["mappings"] = [] if rule == "no-body" else [*action(good)["mappings"]] * 2
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good))
    assert {finding.rule for finding in caught.value.findings} == {rule}


# What passes here is not refused for its form by what sends.


def test_what_lint_takes_renders(good: Document, read: Reader) -> None:
    """Every good neighbour of the cases renders, create and update."""
    for case in CASES:
        document = copy.deepcopy(good)
        (case.good or (lambda _: None))(document)
        for entry in read(document).pack.actions():
            values = SourceValues(values={"name": "x", "a": None, "b": None, "note": None})
            ids = {association.name: "8" for association in entry.contract.associations}
            rendered = [
                render_create(entry.contract, entry.profile, values, idempotency_key=KEY, associated=ids),
                *(
                    render_call(entry.contract, entry.profile, each.name, "r1", other_id="8")
                    for each in entry.contract.associations
                    if each.call is not None
                ),
            ]
            if entry.contract.update is not None:
                rendered.append(
                    render_update(entry.contract, entry.profile, values, "r1", remote_version="7", associated=ids)
                )
            failures = [one for one in rendered if isinstance(one, RenderFailure) and one.code != "value_unsendable"]
            assert not failures, case
