"""A gateway for tests: the real app on the real server and a free port, with the scripted engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_settings import SettingsConfigDict

from app.api.deps import Gateway
from app.config import Settings
from app.engine.pool import Pool
from app.engine.scripted import ScriptedEngine
from app.main import create_app
from app.server import Server
from edge.script import Script, ScriptVocabulary

MODEL = "scripted"


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    key: str
    gateway: Gateway
    script: Script

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Steps:
    """The engine's clockwork in a test's hand: each step waits until it is allowed. `wait` is the engine's sleep."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)
        self._free = threading.Event()

    def wait(self, _: float) -> None:
        while not self._free.is_set() and not self._allowed.acquire(timeout=0.02):
            pass

    def allow(self, steps: int = 1) -> None:
        self._allowed.release(steps)

    def hold(self) -> None:
        self._free.clear()
        while self._allowed.acquire(blocking=False):
            pass

    def run_free(self) -> None:
        self._free.set()


class IsolatedSettings(Settings):
    """Not what a developer's .env says."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_TEST_", env_file=None)


class _TestServer(Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are pytest's."""
        yield


def scripted(length: int | None = None, **options: Any) -> ScriptedEngine:
    return ScriptedEngine(model_id=MODEL, script=Script(ScriptVocabulary(), length=length), **options)


@contextlib.asynccontextmanager
async def serving(
    data_dir: Path, engine: ScriptedEngine | Pool | None = None, *, steps: Steps | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """`steps` are set free in the end, whatever happened: a worker that waits for a test would never stop."""
    engine = engine or scripted()
    made = IsolatedSettings(port=0, data_dir=data_dir, **settings)
    server = _TestServer(create_app(made, engine), made)
    task = asyncio.create_task(server.serve())
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        await task
    try:
        key = (data_dir / "initial-key").read_text().strip()
        script = engine.script if isinstance(engine, ScriptedEngine) else Script(ScriptVocabulary())
        yield Running(server.url, key, server.gateway, script)
    finally:
        if steps is not None:
            steps.run_free()
        server.should_exit = True
        await task


async def until(true: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait for something that the test can't be told of; TimeoutError if it never comes."""
    async with asyncio.timeout(timeout_s):
        while not true():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.005)
