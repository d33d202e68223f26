"""Gateways, devices and proxies as processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.config import ROOT
from edge.connection import Connection, Timing
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Committed, Ended
from edge.protocol.frames import Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary

SCRIPT = Script(ScriptVocabulary())
START_S = 60.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Process:
    """A program that serves on a port. What it says goes to a file."""

    command: list[str]
    port: int
    ready: str
    """Address that answers 200 once it serves."""
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.pid

    @property
    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    async def start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.running = subprocess.Popen(  # noqa: S603, ASYNC220 (it only forks)
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=kept | {"PYTHONPATH": str(ROOT)} | self.environment,
            )
        async with asyncio.timeout(START_S), httpx2.AsyncClient(timeout=5) as client:
            while True:
                if self.running.poll() is not None:
                    raise RuntimeError(f"{self.command[0]} ended: {self.said[-2000:]}")
                with contextlib.suppress(httpx2.HTTPError):
                    if (await client.get(self.url + self.ready)).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def end(self, by: signal.Signals) -> int:
        """Its exit status."""
        assert self.running is not None
        self.running.send_signal(by)
        return await asyncio.to_thread(self.running.wait, 30)

    def kill(self) -> None:
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait(30)


@contextlib.asynccontextmanager
async def started(*processes: Process) -> AsyncIterator[None]:
    try:
        for process in processes:
            await process.start()
        yield
    finally:
        for process in processes:
            process.kill()


def gateway(folder: Path, *, data: Path | None = None, **settings: object) -> Process:
    """On the scripted engine. `data`: a data folder that is shared with another."""
    port = free_port()
    values: dict[str, object] = {
        "data_dir": data or folder / "data",
        "engine_streams": 64,
        "scripted_step_ms": 10,
        "usage_flush_s": 0.2,
        "log_format": "json",
    }
    environment = {f"PACELINE_{name.upper()}": str(value) for name, value in (values | settings).items()}
    command = [sys.executable, "-m", "app", "serve", "--engine", "scripted", "--port", str(port)]
    return Process(command, port, "/readyz", folder, environment)


def device(folder: Path, gateway_url: str, key: str) -> Process:
    """`paceline-edge serve`, with n-gram drafts."""
    port = free_port()
    environment = {
        "PACELINE_URL": gateway_url,
        "PACELINE_API_KEY": key,
        "PACELINE_STATE_DIR": str(folder / "state"),
        "PACELINE_DRAFTER": "ngram",
    }
    command = [sys.executable, "-c", "from edge.cli import main; main()", "serve", "--port", str(port)]
    return Process(command, port, "/health", folder, environment)


def key_of(data: Path) -> str:
    return (data / "initial-key").read_text().strip()


@contextlib.asynccontextmanager
async def connected(url: str, key: str) -> AsyncIterator[Runtime]:
    """A device in this process: it drafts, a good half of it right, and it outlives what is killed."""
    drafter = ScriptedDrafter(SCRIPT, right_with(0.6))
    timing = Timing(backoff_s=0.05, backoff_cap_s=0.5, ping_s=1.0)
    async with (
        Connection(url, key=key, fingerprint=drafter.fingerprint, timing=timing) as connection,
        Runtime(connection, drafter, vocabulary=SCRIPT.vocabulary) as runtime,
    ):
        yield runtime


@dataclass
class Heard:
    """One stream's output, as it comes."""

    tokens: list[int] = field(default_factory=list)
    ended: Ended | None = None


async def ask(runtime: Runtime, number: int, count: int, heard: Heard) -> None:
    """Stream `number` to its end; fails on a token that is lost, doubled, or not the target's own."""
    prompt = (number + 1, number + 2, number + 3)
    request = Generate(prompt=prompt, sampling=Sampling(temperature=0), max_tokens=count, min_tokens=count)
    async for event in runtime.generate(request):
        if isinstance(event, Committed):
            assert event.start == len(heard.tokens)
            heard.tokens += [token.id for token in event.tokens]
        elif isinstance(event, Ended):
            heard.ended = event
    assert heard.ended is not None
    assert heard.tokens == SCRIPT.greedy(prompt, count)


async def until(true: Any, *, timeout_s: float = 60.0) -> None:
    """`true`: a function, or one that must be awaited."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = true()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


async def metric(url: str, name: str) -> float:
    async with httpx2.AsyncClient(timeout=10) as client:
        text = (await client.get(f"{url}/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))
