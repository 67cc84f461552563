"""The worker: claims and sends until it is stopped, or until nothing is due."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pushlink.surfaces.logs import LogFormat, LogLevel, set_up_logs
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, examples
from pushlink.surfaces.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from pushlink.bootstrap import Runtime
    from pushlink.ports import Transport, WireReply, WireRequest
    from pushlink.worker import Tally, Worker

#: Signals that ask a worker to stop; a second one ends it at once.
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def worker(
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is due any more.")] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How log lines on standard error look.")
    ] = LogFormat.CONSOLE,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="From which level on.")] = LogLevel.INFO,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Claim what is due, send it, and record every answer. Run as many as you like."""
    from pushlink.store.access import reading
    from pushlink.store.dialect import check_durability

    output = Output(as_json=as_json)
    log = set_up_logs(log_format, log_level)
    with open_runtime(config) as runtime:
        with reading(runtime.engine) as conn:
            check_durability(conn)
        watch = _Watch(started=time.monotonic())
        shows = output.err.is_terminal and not as_json and log_format is LogFormat.CONSOLE
        with _progress(output, enabled=shows) as progress:
            running = _running(runtime, watch, progress, log, until_idle=until_idle)
            with asyncio.Runner(loop_factory=_fast_loop()) as runner:
                tally = runner.run(running)
    seconds = time.monotonic() - watch.started
    if as_json:
        output.document(
            {
                "claimed": tally.claimed,
                "sent": watch.sent,
                "abandoned": tally.abandoned,
                "seconds": round(seconds, 3),
                "stopped_by": watch.stopped_by,
            }
        )
    else:
        rate = watch.sent / max(seconds, 0.001)
        done = f"{tally.claimed} claimed, {watch.sent} sent, {tally.abandoned} abandoned"
        output.say(f"{done} in {seconds:.1f} s ({rate:.0f}/s).")


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop where it is installed (the extra `speed`): it takes less CPU for each request."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@dataclass(slots=True)
class _Watch:
    """What is seen of a running worker. All of it happens on the worker's event loop."""

    started: float
    sent: int = 0
    in_flight: int = 0
    stopped_by: str | None = None


class _Watched:
    """A transport that counts; it changes nothing about a request or its answer."""

    def __init__(self, transport: Transport, watch: _Watch) -> None:
        self._transport = transport
        self._watch = watch

    async def send(self, request: WireRequest) -> WireReply:
        self._watch.in_flight += 1
        try:
            return await self._transport.send(request)
        finally:
            self._watch.in_flight -= 1
            self._watch.sent += 1

    async def close(self) -> None:
        await self._transport.close()


async def _running(runtime: Runtime, watch: _Watch, progress: Progress, log: Any, *, until_idle: bool) -> Tally:
    from pushlink.worker import Worker

    task = progress.add_task("pushing", total=None, claimed=0, flying=0, abandoned=0, rate=0.0)

    def report(tally: Tally) -> None:
        rate = watch.sent / max(time.monotonic() - watch.started, 0.001)
        progress.update(task, claimed=tally.claimed, flying=watch.in_flight, abandoned=tally.abandoned, rate=rate)

    made = Worker(
        world=runtime.world,
        engine=runtime.engine,
        transport=_Watched(runtime.transport(), watch),
        options=runtime.worker_options(),
        on_progress=report,
    )
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, _asked_to_stop, made, number, watch, log)
    log.info("the worker starts", worker=made.incarnation, until_idle=until_idle)
    try:
        tally = await made.run(until_idle=until_idle)
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
    log.info("the worker has stopped", worker=made.incarnation, claimed=tally.claimed, abandoned=tally.abandoned)
    return tally


def _asked_to_stop(worker_: Worker, number: signal.Signals, watch: _Watch, log: Any) -> None:
    if watch.stopped_by is not None:
        log.warning("a second signal: ending at once; what is in flight is recovered by its lease", signal=number.name)
        os._exit(128 + number)
    watch.stopped_by = number.name
    log.info("stopping: no more claims, requests in flight may end", signal=number.name, in_flight=watch.in_flight)
    worker_.stop()


def _progress(output: Output, *, enabled: bool) -> Progress:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[claimed]} claimed"),
        TextColumn("{task.fields[flying]} in flight"),
        TextColumn("{task.fields[abandoned]} abandoned"),
        TextColumn("{task.fields[rate]:.0f}/s"),
        TimeElapsedColumn(),
        console=output.err,
        transient=True,
        disable=not enabled,
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "pushlink worker", "pushlink worker --until-idle", "pushlink worker --log-format json --log-level warning"
        )
    )(worker)
