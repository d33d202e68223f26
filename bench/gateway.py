"""A gateway in a process of its own, pinned to a core, as a bench needs it.

`python -m bench.gateway '{…}'` serves the product's own app with the product's own server until its standard input
ends, and prints one line of JSON: where it listens, and an API key.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from app.config import Settings
from app.engine.base import Engine
from app.engine.batching import BatchingEngine
from app.engine.loop import Published
from app.engines import build_engine
from app.first_start import KEY_FILE
from app.main import create_app
from app.server import Server
from app.telemetry import configure_logging
from bench.link import Link
from bench.wan import until_stdin_closes

Name = TypeVar("Name")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve."""

    engine: str
    """`scripted`, or `llama_cpp`."""
    target: str = ""
    """A model file for `llama_cpp`; empty: the embedded target."""
    step_s: float = 0.030
    """A scripted step."""
    core: int | None = None
    streams: int = 8
    queue: int = 128
    """Requests that may wait for a place."""
    admin_key: str = ""
    step_tokens: int = 1024
    prefill_tokens: int = 64
    tenant_streams: int = 512
    grace_s: float = 60.0
    times: str = ""
    """A file for when each step's tokens left the engine's thread: seconds on the system's monotonic clock, doubles."""


class Address(msgspec.Struct, frozen=True):
    port: int
    key: str
    pid: int


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keep this thread, and what it starts meanwhile, on one core, where the system can."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores() -> tuple[int, int]:
    """One for the edge and one for the cloud; the same if there is only one."""
    if not hasattr(os, "sched_getaffinity"):
        return 0, 1
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


class _Announcing(Server):
    """Says where it listens, and stops with its parent."""

    watcher: asyncio.Task[None] | None = None
    data_dir = Path()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        port = self.servers[0].sockets[0].getsockname()[1]
        key = (self.data_dir / KEY_FILE).read_text(encoding="utf-8").strip()
        sys.stdout.write(msgspec.json.encode(Address(port, key, os.getpid())).decode() + "\n")
        sys.stdout.flush()
        self.watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await until_stdin_closes()
        self.should_exit = True


def _engine(plan: Plan, settings: Settings) -> Engine:
    if plan.engine == "scripted":
        from app.engine.scripted import ScriptedEngine

        # As many drafts in a step as there are: the schemes are compared, not a budget.
        engine = ScriptedEngine(
            step_s=plan.step_s,
            streams=plan.streams,
            queue=plan.queue,
            draft_tokens=64,
            step_tokens=plan.step_tokens,
            prefill_tokens=plan.prefill_tokens,
            window=64,
        )
        return _timed(engine, plan.times) if plan.times else engine
    return build_engine(settings)


def _timed(engine: BatchingEngine, path: str) -> BatchingEngine:
    publish = engine._publish
    file = open(path, "ab", buffering=0)  # noqa: SIM115 (as long as the process)

    def timed(published: Published) -> None:
        file.write(struct.pack("d", time.monotonic()))
        publish(published)

    engine._publish = timed  # type: ignore[method-assign]
    return engine


def main(argument: str) -> None:
    plan = msgspec.json.decode(argument, type=Plan)
    with pinned(plan.core), tempfile.TemporaryDirectory() as folder:
        values: dict[str, Any] = {
            "engine": plan.engine,
            "engine_streams": plan.streams,
            "engine_queue": plan.queue,
            "admin_key": plan.admin_key,
            "tenant_streams": plan.tenant_streams,
            "grace_s": plan.grace_s,
        }
        if plan.engine == "scripted":
            values["engine_step_tokens"] = plan.step_tokens
        if plan.target:
            values["target_model"] = plan.target
        settings = Settings(port=0, data_dir=Path(folder), log_level="warning", **values)
        configure_logging(settings.log_format, settings.log_level)
        server = _Announcing(create_app(settings, _engine(plan, settings)), settings)
        server.data_dir = settings.data_dir
        server.run()


@asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[bytes]:
    """A Python module in a process of its own, as long as the body runs; gives its first line of output.

    Raises RuntimeError, with what it said, if it ends before that.
    """
    with tempfile.TemporaryFile() as said:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, stdin=pipe, stdout=pipe, stderr=said
        )
        try:
            line = await process.stdout.readline() if process.stdout is not None else b""
            if not line:
                await process.wait()
                said.seek(0)
                raise RuntimeError(f"{arguments[0]} didn't start: {said.read().decode(errors='replace')[-2000:]}")
            yield line
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(20):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def gateway(plan: Plan) -> AsyncIterator[Address]:
    """A running gateway."""
    async with child("bench.gateway", msgspec.json.encode(plan).decode()) as line:
        yield msgspec.json.decode(line, type=Address)


@asynccontextmanager
async def proxies(port: int, links: Mapping[Name, Link]) -> AsyncIterator[dict[Name, int]]:
    """For each network the port of a proxy before `port`."""
    async with child("bench.wan", str(port), msgspec.json.encode(list(links.values())).decode()) as line:
        yield dict(zip(links, json.loads(line), strict=True))


def networks(port: int, rtts_ms: Sequence[float]) -> AbstractAsyncContextManager[dict[float, int]]:
    """The same for networks that are a round-trip time and nothing else."""
    return proxies(port, {ms: Link(ms / 1e3) for ms in rtts_ms})


if __name__ == "__main__":
    main(sys.argv[1])
