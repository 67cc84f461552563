"""The real changes, by the name of their row in `cells.py`: what people, packs, credentials and remotes do.

Nothing here touches a table: a pack is applied again, a variable of the environment is set, a record is deleted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from drift.scene import CELLS, Change, Scene
from flows.stage import USER, action_of, pack_with, profile_of
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, updating
from pushlink.testing.scripted import ScriptedTransport

Edit: TypeAlias = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change, and what has to be there before it."""

    change: Change
    before: Edit | None = None
    remote: Callable[[], ScriptedTransport] | None = None

    def pack(self) -> dict[str, Any]:
        """The pack that is active before the change."""
        return pack_with(self.before)


def edited(edit: Edit, *, before: Edit | None = None) -> Case:
    """The pack is applied again with an edit."""

    def change(scene: Scene) -> None:
        document = copy.deepcopy(dict(scene.pack))
        edit(document)
        scene.stage.apply(document)

    return Case(change=change, before=before)


def _profile(**values: Any) -> Case:
    return edited(lambda document: profile_of(document).update(values))


def _slots(document: dict[str, Any], owner: str, action: str, destination: str) -> None:
    document["connector_owner_key"] = owner
    document["destinations"][0]["destination_slot_id"] = destination
    action_of(document).update(action_slot_id=action, destination=destination)


def _other_object(document: dict[str, Any]) -> None:
    action_of(document).update(action_slot_id="act-9", source_object="Company")


def _rename_profile(document: dict[str, Any]) -> None:
    document["profiles"] = {"other": document["profiles"]["main"]}
    document["destinations"][0]["profile"] = "other"


def _rename_and_more(document: dict[str, Any]) -> None:
    document["namespace"] = "persons"
    profile_of(document)["retry"] = {"attempts": 3}


def _move(document: dict[str, Any], **destination: str) -> None:
    document["destinations"][0].update(destination_slot_id="dest-2", **destination)
    action_of(document)["destination"] = "dest-2"


def _same_route(document: dict[str, Any]) -> None:
    profile_of(document).update(
        base_url="https://api.example.com", waives={"endpoint": True, "update_path_same_route": True}
    )
    action_of(document)["create"]["path"] = "/v2/people"
    action_of(document)["update"]["path"] = "/v2/people/{remote_id}"


def _uninstall(scene: Scene) -> None:
    scene.stage.uninstall()


def _install_again(scene: Scene) -> None:
    scene.stage.uninstall()
    scene.stage.apply(scene.pack)


def _install_another_owner(scene: Scene) -> None:
    scene.stage.uninstall()
    document = copy.deepcopy(dict(scene.pack))
    _slots(document, "owner-2", "act-9", "dest-9")
    scene.stage.apply(document)


def _rotate(scene: Scene) -> None:
    scene.environment["PEOPLE_TOKEN"] = "another-token-of-the-same-grant"


def _rename_credential(scene: Scene) -> None:
    scene.environment["OTHER_TOKEN"] = scene.environment["PEOPLE_TOKEN"]
    _profile(credential_ref="env:OTHER_TOKEN", waives={"credential_ref": True}).change(scene)


def _take_away(scene: Scene) -> None:
    del scene.environment["PEOPLE_TOKEN"]


def _deny(scene: Scene) -> None:
    scene.readers.denied = frozenset({"email"})


def _hide(scene: Scene) -> None:
    scene.readers.hidden = frozenset(str(number) for number in CELLS.values())


def _deactivate(scene: Scene) -> None:
    scene.readers.left = frozenset({USER})


def _delete(scene: Scene) -> None:
    for number in CELLS.values():
        scene.stage.drop(number)


def _delete_and_tell(scene: Scene) -> None:
    for number in CELLS.values():
        with scene.stage.engine.begin() as conn:
            scene.stage.runtime.deleted(conn, "Person", number, user=USER)
            conn.execute(sa.text("DELETE FROM person WHERE id = :id"), {"id": number})


def _delete_at_remote(scene: Scene) -> None:
    for record in scene.stage.remote.api.records:
        scene.stage.remote.api.delete(record.collection, record.id)


def _edit_at_remote(scene: Scene) -> None:
    for record in scene.stage.remote.api.records:
        scene.stage.remote.api.edit(record.collection, record.id, name="Somebody else's")


def _answering(status: int) -> Case:
    return Case(change=lambda scene: scene.stage.remote.script.always(verbs.answer(status, {}), when=updating))


def _name_the_same(scene: Scene) -> None:
    answer = verbs.answer(201, {"id": scene.link_id(1)})
    scene.stage.remote.script.always(answer, when=creating)


def _die(scene: Scene) -> None:
    scene.workers_die = True


def _tagged() -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", etags="strong"))


def _guard(**more: Any) -> Edit:
    def before(document: dict[str, Any]) -> None:
        action_of(document)["create"]["response"]["version"] = [{"from": "$response.header.ETag"}]
        action_of(document)["update"]["precondition"] = {"kind": "etag", **more}

    return before


def _id_rule(document: dict[str, Any]) -> None:
    action_of(document)["create"]["response"]["id_rule"] = {"canonical": "lower_v1"}


_LATER_ID: Final = [{"from": "$response.body#/uid"}, {"from": "$response.body#/id"}]

#: By row.
CASES: Final[Mapping[str, Case]] = {
    "flow version": edited(lambda d: d["flows"][0].update(version=2)),
    "condition": edited(lambda d: action_of(d).update(when=[{"field": "name", "present": True}])),
    "flow renamed": edited(lambda d: d["flows"][0].update(flow="Push persons")),
    "action renamed": edited(lambda d: action_of(d).update(action="send_person")),
    "action slot gone": edited(_other_object),
    "action slot recreated": edited(lambda d: action_of(d).update(action_slot_id="act-2")),
    "namespace renamed": edited(lambda d: d.update(namespace="persons")),
    "pack renamed": edited(lambda d: d.update(pack="persons")),
    "namespace and more": edited(_rename_and_more),
    "owner missing": Case(change=_uninstall),
    "owner changed": Case(change=_install_another_owner),
    "pack installed again": Case(change=_install_again),
    "profile renamed": edited(_rename_profile),
    "profile inactive": _profile(active=False),
    "profile recreated": edited(_move),
    "credential reference": _profile(credential_ref="env:OTHER_TOKEN"),
    "credential reference, waived": Case(change=_rename_credential),
    "endpoint": _profile(base_url="https://other.example.com/v2"),
    "endpoint class": _profile(endpoint_class="sandbox"),
    "endpoint, waived": _profile(base_url="https://other.example.com/v2", waives={"endpoint": True}),
    "credential rotated": Case(change=_rotate),
    "credential taken away": Case(change=_take_away),
    "credential rotated, waived": Case(
        change=_rotate, before=lambda d: profile_of(d).update(waives={"credential_generation": True})
    ),
    "retry policy": _profile(retry={"attempts": 3}),
    "mapping": edited(lambda d: action_of(d)["mappings"].append({"source": "salary", "target": "/salary"})),
    "headers": _profile(headers={"X-Kind": "person"}),
    "field denied": Case(change=_deny),
    "row denied": Case(change=_hide),
    "user deactivated": Case(change=_deactivate),
    "create path": edited(lambda d: action_of(d)["create"].update(path="/persons")),
    "update path": edited(lambda d: action_of(d)["update"].update(path="/persons/{remote_id}")),
    "update path, waived": edited(_same_route),
    "response id path": edited(lambda d: action_of(d)["create"]["response"].update(id=_LATER_ID)),
    "mirror": edited(lambda d: action_of(d)["mirror"].update(remote_id_field="salary")),
    "target renamed": edited(lambda d: d["destinations"][0].update(target_object="persons")),
    "destination scope": _profile(destination_scope="tenant-43"),
    "canonical id": edited(_id_rule),
    "destination slot": edited(lambda d: _move(d, target_object="contacts")),
    "idempotency": edited(lambda d: action_of(d)["update"].update(idempotent=True)),
    "source deleted, told": Case(change=_delete_and_tell),
    "source deleted": Case(change=_delete),
    "remote deleted": Case(change=_delete_at_remote),
    "answer 410": _answering(410),
    "remote edited": Case(change=_edit_at_remote, before=_guard(), remote=_tagged),
    "remote edited, refetched": Case(change=_edit_at_remote, before=_guard(refetch_once=True), remote=_tagged),
    "answer 409": _answering(409),
    "answer 412": _answering(412),
    "locator conflict": Case(change=_name_the_same),
    "worker died": Case(change=_die),
}
