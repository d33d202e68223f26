"""The scripted engine for a test: running free, or held in the middle of a step until the test lets it go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.engine.scripted import ScriptedEngine

FOREVER_S = 1e6


class Gate:
    """Holds the model in the middle of a step until it is let go: `wait` is the engine's sleep."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._allowed = threading.Semaphore(0)
        self._open = threading.Event()

    def wait(self, _: float) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        while not self._open.is_set() and not self._allowed.acquire(timeout=0.01):
            pass

    def step(self) -> None:
        self.entered.clear()
        self._allowed.release()

    def open(self) -> None:
        self._open.set()


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(**options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        assert not engine._live
        assert not engine._queued


@asynccontextmanager
async def gated(**options: Any) -> AsyncIterator[tuple[ScriptedEngine, Gate]]:
    gate = Gate()
    async with running(step_s=FOREVER_S, sleep=gate.wait, **options) as engine:
        try:
            yield engine, gate
        finally:
            gate.open()
