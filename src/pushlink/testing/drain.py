"""Runtimes for tests, and ways to work until nothing is due: with the worker as it is, or step by step on this thread.

`open_runtime` makes everything a test needs in one directory: a database, its tables, a secret, an applied pack that
speaks to a remote of the test. `drain` runs the real worker. `drain_inline` runs the same flows one after the other
without an event loop, and moves a test's clock instead of waiting.
"""

from __future__ import annotations

import asyncio
import secrets
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from pushlink.bootstrap import Parts, Runtime
from pushlink.errors import CallerError
from pushlink.flows.claim import ClaimSteps
from pushlink.flows.drivers import Database
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.operations.packs import AppliedView
from pushlink.packs.loader import load_pack, load_pack_text
from pushlink.packs.model import Pack
from pushlink.ports import Credentials, Secret
from pushlink.settings import Settings
from pushlink.testing.driver import Death, End, How, SendNow, run_dying, worker_pass
from pushlink.worker import Tally, WorkerOptions

#: Rounds of a drain; one that needs more is in a circle.
PASSES_MAX: Final = 200


class OneToken(Credentials):
    """The same secret behind every reference; `change` makes another generation of it."""

    def __init__(self, token: str) -> None:
        self._secret = Secret(value=token, generation="generation-1")
        self._changes = 1

    def change(self, token: str) -> None:
        """Another secret, under another generation."""
        self._changes += 1
        self._secret = Secret(value=token, generation=f"generation-{self._changes}")

    def generation(self, reference: str, *, tenant: str) -> str:
        """The generation of the one secret."""
        return self.resolve(reference, tenant=tenant).generation

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        """The one secret."""
        del reference, tenant
        return self._secret


def open_runtime(
    directory: Path,
    *,
    pack: Pack | str | Path | None = None,
    base_url: str | None = None,
    token: str | None = None,
    tenant: str = "",
    bind: Mapping[str, object] | None = None,
    metadata: sa.MetaData | None = None,
    parts: Parts | None = None,
    **settings: Any,
) -> Runtime:
    """A runtime over a database of its own. Close it when the test ends.

    `pack` is a file, a text or a model, and every profile of it speaks to `base_url` where one is given. `bind` names
    mapped classes or tables by their source objects; `metadata` is created in the same database. `token` answers every
    credential reference. `settings` win over those of `runtime.toml`; what `parts` brings wins over everything.
    """
    text = resources.files("pushlink.testing").joinpath("runtime.toml").read_text(encoding="utf-8")
    defaults = tomllib.loads(text.replace("{directory}", directory.as_posix()))
    (directory / "secret").write_text(secrets.token_hex(32), encoding="utf-8")
    chosen = parts or Parts()
    if token is not None and chosen.credentials is None:
        chosen = replace(chosen, credentials=OneToken(token))
    runtime = Runtime(Settings(**{**defaults, **settings}), chosen)
    runtime.upgrade()
    if metadata is not None:
        metadata.create_all(runtime.engine)
    for name, source in (bind or {}).items():
        runtime.bind(source, name)
    if pack is not None:
        apply(runtime, pack, base_url=base_url, tenant=tenant)
    return runtime


def apply(runtime: Runtime, pack: Pack | str | Path, *, base_url: str | None = None, tenant: str = "") -> AppliedView:
    """Make a pack the active one of its owner, its profiles speaking to `base_url` where one is given."""
    model = pack if isinstance(pack, Pack) else load_pack(pack) if isinstance(pack, Path) else load_pack_text(pack)
    if base_url is not None:
        moved = {name: p.model_copy(update={"base_url": base_url}) for name, p in model.profiles.items()}
        model = model.model_copy(update={"profiles": moved})
    return runtime.apply_pack(model, tenant=tenant, actor="test", reason="a test")


def drain(runtime: Runtime, *, horizon_s: float = 3.0) -> Tally:
    """Run the real worker until nothing is in flight and nothing becomes due within `horizon_s` seconds.

    It has an event loop of its own, on another thread where this one runs a loop already.
    """
    options = replace(runtime.worker_options(), idle_horizon_s=horizon_s)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _work(runtime, options)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_work, runtime, options).result()


def _work(runtime: Runtime, options: WorkerOptions) -> Tally:
    return asyncio.run(runtime.worker(options=options).run(until_idle=True))


def claims_of(world: World) -> ClaimSteps:
    """The claims of a worker that was just born: another incarnation each time."""
    return ClaimSteps(world, incarnation=world.ids.token())


def drain_inline(
    world: World, database: Database, send: SendNow, *, advance: Callable[[float], object], limit: int = 64
) -> int:
    """Work on this thread until nothing waits; answers with the number of rounds.

    Where the next row is due later, or a lease has to end first, `advance` is told by how many seconds: a test hands in
    its clock's. Raises `CallerError` when it never ends.
    """
    steps, claims = Steps(world), claims_of(world)
    untouched = Death(at=-1, how=How.DIES_BEFORE)
    for rounds in range(PASSES_MAX):
        with database.engine.begin() as conn:
            [due_s] = claims.due_in_s(conn, [None], now=world.clock.now(conn))
        if due_s is None:
            return rounds
        if due_s > 0:
            advance(due_s + 0.001)
        end = run_dying(worker_pass(claims, steps, limit=limit), database, send, untouched)
        if end is not End.FINISHED:
            break
    msg = "the work has no end"
    raise CallerError(msg, evidence={"rounds": PASSES_MAX})
