"""A gateway for end-to-end tests: the real one, served in the test's own event loop, on whatever engine is given."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from app.config import Settings
from app.engine.base import Engine
from app.engine.scripted import ScriptedEngine
from app.main import create_app
from app.server import Server
from edge.script import Script


class _Server(Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are pytest's."""
        yield


class Gateway:
    """Serve from entering to leaving. `port` 0: a free one; a later gateway on the same port and data is a restart."""

    def __init__(
        self,
        data: Path,
        target: Script | Engine,
        *,
        port: int = 0,
        step_s: float = 0.0,
        grace_s: float = 60.0,
        admin_key: str = "",
        hold_ms: float = 50,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.port = port
        self._settings = Settings(
            _env_file=None,  # type: ignore[call-arg]  # pydantic-settings takes it
            data_dir=data,
            port=port,
            grace_s=grace_s,
            admin_key=SecretStr(admin_key),
            log_level="error",
            hold_ms=hold_ms,
        )
        self.engine = (
            ScriptedEngine(script=target, step_s=step_s, sleep=sleep) if isinstance(target, Script) else target
        )
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self._settings.data_dir / "initial-key").read_text().strip()

    async def __aenter__(self) -> Self:
        self._server = _Server(create_app(self._settings, self.engine), self._settings)
        self._serving = asyncio.create_task(self._server.serve())
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait((self._serving, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            self._serving.result()
            raise RuntimeError("the gateway did not start")
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        await self._serving
