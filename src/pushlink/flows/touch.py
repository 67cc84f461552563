"""The first touch of a link whose lineage is gone: a save of its record suspends it (DR-03, DR-05, DR-08, DR-20).

Such a link stands under slots that no pack has any more, so no action of the save finds it; it is looked for under the
identities that the registry remembers for the object. What the save itself comes to is the gates' business.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.candidates import SaveItem
from pushlink.flows.drifting import Drifting
from pushlink.flows.world import World
from pushlink.protocol.drift import Hit, suspends_link
from pushlink.protocol.identity import link_key
from pushlink.protocol.states import USABLE_LINKS, LinkEvent
from pushlink.store import lifecycle, links, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.catalog import read_deployment
from pushlink.store.lifecycle import LinkMove
from pushlink.store.rows import LinkRow


def suspend_lost_links(
    world: World,
    drifting: Drifting,
    conn: sa.Connection,
    items: Sequence[SaveItem],
    catalog: ActiveCatalog,
    *,
    actor: str,
    now: dt.datetime,
) -> None:
    """Suspend every usable link of these records that drift of its lineage suspends; a usual save reads nothing."""
    keys = sorted(
        {
            link_key(former, item.ref.record_id)
            for item in items
            for former in catalog.former_slots(item.tenant, item.ref.source_object)
        }
    )
    usable = [link.link_key for link in links.read_links(conn, keys) if link is not None and _is_usable(link)]
    if not usable or read_deployment(conn).mode != "running":
        return
    slots.lock_slots(conn, usable, nowait=False)
    locked = [link for link in links.read_links(conn, usable, lock=True) if link is not None and _is_usable(link)]
    world.thaw(conn, [link.profile_digest for link in locked], [link.action_digest for link in locked])
    lost = [(link, suspends_link(drifting.of_link(link, catalog))) for link in locked]
    lifecycle.move_links(conn, [_suspension(link, hits, catalog, actor) for link, hits in lost if hits], now=now)


def _is_usable(link: LinkRow) -> bool:
    return link.status in USABLE_LINKS


def _suspension(link: LinkRow, lost: Sequence[Hit], catalog: ActiveCatalog, actor: str) -> LinkMove:
    return LinkMove(
        link_id=link.id,
        link_key=link.link_key,
        tenant=link.tenant,
        status=link.status,
        row_version=link.row_version,
        event=LinkEvent.SUSPEND,
        actor=actor,
        reason_code=Code.DRIFT,
        evidence={
            "surfaces": [hit.surface.value for hit in lost],
            "rules": [hit.rule for hit in lost],
            "catalog_revision": catalog.revision,
        },
    )
