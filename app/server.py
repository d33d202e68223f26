"""The gateway's ASGI app behind uvicorn, with the options that the protocol needs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from app import bounds
from app.api.deps import Gateway
from app.config import Settings
from app.main import running
from app.reload import reload

_STOP_S = 5
"""How long a stop waits for open responses, seconds."""


class Server(uvicorn.Server):
    """Uvicorn, but HTTP answers in progress are ended when it stops, instead of waited for to their last token."""

    def __init__(self, app: FastAPI, settings: Settings, *, load: Callable[[], Settings] | None = None) -> None:
        """`load`: reads the settings again, at SIGHUP; None: nothing does."""
        self._load = load
        self.gateway: Gateway = app.state.gateway
        self.ready = asyncio.Event()
        """Set once it listens."""
        self._life = contextlib.AsyncExitStack()
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                http=bounds.http(settings.hello_s),
                ws=bounds.WebSocket,
                ws_per_message_deflate=False,  # costs latency, and most frames are tens of bytes
                ws_max_size=4 * settings.frame_bytes,
                ws_ping_interval=20.0,
                ws_ping_timeout=20.0,
                timeout_graceful_shutdown=_STOP_S,
            )
        )

    @property
    def url(self) -> str:
        """Where it listens; known once it is ready."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Raises StartError. (The app's own lifespan would have it end in uvicorn's log, as a traceback.)"""
        await self._life.enter_async_context(running(self.gateway))
        try:
            await super().startup(sockets)
        except BaseException:  # the port is taken: uvicorn has said so and exits
            await self._life.aclose()
            raise
        if self.started:
            if self._load is not None and hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload, self.gateway, self._load)
            self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.gateway.drain()
        try:
            await super().shutdown(sockets)
        finally:
            await self._life.aclose()
