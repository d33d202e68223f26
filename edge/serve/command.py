"""`paceline-edge serve`: load the drafter, listen, say where."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from rich.console import Console
from rich.text import Text

from edge.address import free, is_loopback
from edge.cloud import Cloud
from edge.config import DeviceSettings, gateway_url
from edge.drafters.base import Drafter
from edge.drafters.load import load_drafter
from edge.errors import EdgeError, Unreachable
from edge.ladder import Ladder, Path
from edge.privacy import Recorder
from edge.route import budget_for, connected, recorder_for
from edge.runtime import Runtime
from edge.serve.app import create_app
from edge.serve.dispatch import Device, Dispatcher
from edge.serve.proxy import Proxy
from edge.serve.socket import Socket
from edge.terminal import model_progress

_CHECK_S = 5.0
"""How long the gateway may take to answer at the start."""
_STOP_S = 5
"""How long a stop waits for answers that are being sent."""


def run_serve(settings: DeviceSettings, *, host: str, port: int, local: bool) -> int:
    """Returns the exit status. `local`: the drafter may answer alone when the gateway is out of reach."""
    side = Console(stderr=True)
    key = settings.serve_key.get_secret_value()
    if not key and not is_loopback(f"http://{host}"):
        side.print(Text(f"On {host} others can reach this endpoint: set PACELINE_SERVE_KEY first.", style="red"))
        return 2
    if settings.privacy in ("redacted", "draft_only"):  # every request would be refused
        words = f"This endpoint doesn't do privacy mode {settings.privacy!r}: set PACELINE_PRIVACY to full or local."
        side.print(Text(words, style="red"))
        return 2
    if port and not free(host, port):
        words = f"Port {port} of {host} is in use: stop what listens there, or choose another --port."
        side.print(Text(words, style="red"))
        return 2
    logging.basicConfig(level=logging.WARNING)
    try:
        if settings.privacy != "local":
            asyncio.run(_check_gateway(settings, side, local=local))
        with model_progress(side) as fetched:
            drafter = load_drafter(settings, fetched=fetched)
        asyncio.run(_serve(settings, drafter, side, host, port, local=local))
    except EdgeError as error:
        side.print(Text(str(error), style="red"))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _check_gateway(settings: DeviceSettings, side: Console, *, local: bool) -> None:
    """A wrong key is wrong for good: raises KeyRefused. A gateway that doesn't answer may come yet."""
    url = gateway_url(settings.url)
    try:
        async with Cloud(url, settings.key(), allow_plain=settings.allow_plain) as cloud, asyncio.timeout(_CHECK_S):
            await cloud.models()
    except (Unreachable, TimeoutError):
        till = "the draft model answers alone, unverified" if local else "requests are answered with an error"
        words = f"No gateway answers at {url} now: until one does, {till}."
        side.print(Text(words, style="yellow"), soft_wrap=True)


async def _serve(
    settings: DeviceSettings, drafter: Drafter | None, side: Console, host: str, port: int, *, local: bool
) -> None:
    try:
        async with dispatching(settings, drafter, local=local) as dispatcher:
            app = create_app(dispatcher, key=settings.serve_key.get_secret_value())
            config = uvicorn.Config(
                app,
                host=host,
                port=port,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=_STOP_S,
            )
            await _Announcing(config, side, settings).serve()
    finally:
        if drafter is not None:
            drafter.close()


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, side: Console, settings: DeviceSettings) -> None:
        super().__init__(config)
        self._side = side
        self._gateway = gateway_url(settings.url)

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            where = f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
            line = f"OpenAI-compatible endpoint on {where}, answered by {self._gateway} (Ctrl-C stops it)"
            self._side.print(Text(line), soft_wrap=True)


@asynccontextmanager
async def dispatching(
    settings: DeviceSettings, drafter: Drafter | None, *, local: bool = False
) -> AsyncIterator[Dispatcher]:
    """All behind the HTTP side. Nothing is connected before the first request."""
    recorder = recorder_for(settings, drafter)

    @asynccontextmanager
    async def open_runtime() -> AsyncIterator[Runtime]:
        async with (
            connected(settings, drafter, recorder) as (connection, _, fits),
            Runtime(connection, drafter if fits else None, budget=budget_for(settings)) as runtime,
        ):
            yield runtime

    paths: list[Path] = ["hybrid", "cloud"]
    if local or settings.privacy == "local":
        paths.append("local")
    device = Device(
        drafter, settings.draft_context, settings.policy, settings.draft_sampling == "coupled", settings.privacy
    )
    socket = Socket(open_runtime)
    ladder = Ladder(paths, random.random)
    async with Proxy(gateway_url(settings.url), settings.key(), allow_plain=settings.allow_plain) as proxy:
        try:
            yield _dispatcher(device, socket, proxy, ladder, recorder)
        finally:
            await socket.close()


def _dispatcher(device: Device, socket: Socket, proxy: Proxy, ladder: Ladder, recorder: Recorder | None) -> Dispatcher:
    return Dispatcher(device, socket, proxy, ladder, recorder=recorder, clock=time.monotonic, now=time.time)
