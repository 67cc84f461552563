"""What lint says about associations: whom they mean, where the other record's id goes, and the call of their own."""

from __future__ import annotations

from collections.abc import Mapping

from pushlink.packs import grammar
from pushlink.packs.lint_headers import check_headers
from pushlink.packs.model import Action
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.association_contracts import CARRIED_BY, Association, AssociationCall
from pushlink.protocol.body import OperationName
from pushlink.protocol.contracts import CreateContract, ProfileContract, UpdateContract
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.jsontext import segments
from pushlink.protocol.paths import names_in_template, query_problem
from pushlink.protocol.placeholders import REMOTE_ID, RESERVED, name_of, names_in


def check_associations(
    steps: Steps, action: Action, actions: Mapping[str, Action], profile: ProfileContract | None
) -> Hits:
    """Everything about one action's associations; `actions` are the pack's, by slot id."""
    seen: set[str] = set()
    for index, association in enumerate(action.associations):
        here: Steps = (*steps, "associations", index)
        taken = RESERVED | (frozenset() if profile is None else frozenset(profile.variables)) | seen
        if association.name in taken:
            message = f"`{association.name}` means something else already. Write another name."
            yield Hit("association", (*here, "name"), message)
        seen.add(association.name)
        yield from _check_target_action(here, association, actions)
        yield from _check_places(here, action, association)
        yield from _check_overlap(here, action, index)
        if association.call is not None:
            yield from _check_call((*here, "call"), association, association.call, profile)


def association_names(action: Action, operation: OperationName) -> frozenset[str]:
    """The names that one operation's request may use as variables."""
    return frozenset(each.name for each in action.associations if operation in CARRIED_BY[each.mode])


def _check_target_action(steps: Steps, association: Association, actions: Mapping[str, Action]) -> Hits:
    found = actions.get(association.action_slot_id)
    if found is None:
        message = f"The pack has no action `{association.action_slot_id}`. Write one of its action_slot_ids."
        yield Hit("association", (*steps, "action_slot_id"), message)
    elif found.source_object != association.source_object:
        message = f"`{found.action}` pushes {found.source_object}. Write that object, or the slot of another action."
        yield Hit("association", (*steps, "source_object"), message)


def _check_places(steps: Steps, action: Action, association: Association) -> Hits:
    is_call = association.mode == "call_after"
    if is_call is not (association.call is not None):
        yield Hit("association", (*steps, "mode"), "Write mode: call_after and a call together.")
    if association.value is not None and set(names_in(association.value)) != {association.name}:
        message = f"Write {{{association.name}}} as a whole text in it, and no other placeholder."
        yield Hit("association", (*steps, "value"), message)
    if is_call:
        if association.target is not None:
            yield Hit("association", (*steps, "target"), "A call of its own has its own body. Remove the target.")
        return
    requests = {"create": action.create, "update": action.update}
    for operation in sorted(CARRIED_BY[association.mode]):
        request = requests[operation]
        if request is None:
            if association.mode == "update_only":
                yield Hit("association", (*steps, "mode"), "The action has no update, so this is never sent.")
        elif association.target is None and not _names(request, association.name):
            message = f"Nothing of the {operation} has it. Write a target, or {{{association.name}}} in its route."
            yield Hit("association", steps, message)
        elif request.body.encoding == "form" and association.target is not None and association.clear == "null":
            yield Hit("form-values", (*steps, "clear"), "A form has no null. Write clear: omit.")


def _names(request: CreateContract | UpdateContract, name: str) -> bool:
    in_query = {name_of(value) for value in request.query.values()}
    return name in names_in_template(request.path) or name in in_query or name in names_in(request.body.merge)


def _check_overlap(steps: Steps, action: Action, index: int) -> Hits:
    association = action.associations[index]
    if association.target is None:
        return
    carriers = CARRIED_BY[association.mode]
    others: list[tuple[str, frozenset[str]]] = [
        (mapping.target, frozenset(mapping.operations)) for mapping in action.mappings
    ]
    others += [(each.target, CARRIED_BY[each.mode]) for each in action.associations[:index] if each.target is not None]
    path = segments(association.target)
    for target, operations in others:
        other = segments(target)
        shared = min(len(path), len(other))
        if operations & carriers and path[:shared] == other[:shared]:
            message = f"`{target or 'the whole body'}` is written as well. Keep one of the two."
            yield Hit("overlapping-targets", (*steps, "target"), message)


def _check_call(steps: Steps, association: Association, call: AssociationCall, profile: ProfileContract | None) -> Hits:
    own = frozenset() if profile is None else frozenset(profile.variables)
    allowed = own | {REMOTE_ID, association.name}
    elsewhere = {name_of(value) for value in call.query.values()} | set(names_in(call.body))
    needed = frozenset({REMOTE_ID, association.name}) - elsewhere
    problems = grammar.path_problems(call.path, variables=allowed, needed=needed)
    yield from (Hit("path", (*steps, "path"), problem) for problem in problems)
    for name, value in call.query.items():
        if problem := query_problem(name, value, allowed=allowed):
            yield Hit("query", (*steps, "query", name), grammar.sentence(problem))
    for name in names_in(call.body):
        if name not in allowed:
            yield Hit("association", (*steps, "body"), f"`{{{name}}}` is not known in this call.")
    yield from check_headers((*steps, "headers"), call.headers, profile)
    if not call.success.status:
        message = "Write the statuses that mean done, such as [200]."
        yield Hit("success-empty", (*steps, "success", "status"), message)


def probes(action: Action) -> tuple[MappingContract, ...]:
    """Each association that stands in a body, as the mapping that would take its place."""
    return tuple(
        MappingContract(constant="x", target=each.target, operations=_operations(each))
        for each in action.associations
        if each.target is not None and CARRIED_BY[each.mode]
    )


def _operations(association: Association) -> tuple[OperationName, ...]:
    carriers = CARRIED_BY[association.mode]
    names: tuple[OperationName, ...] = ("create", "update")
    return tuple(name for name in names if name in carriers)
