"""The device's endpoint for end-to-end tests: the real one, on a scripted drafter, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn

from edge.config import DeviceSettings
from edge.drafters.base import Drafter
from edge.serve.app import create_app
from edge.serve.command import dispatching


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are pytest's."""
        yield


def device_settings(state: Path, url: str, key: str, **more: object) -> DeviceSettings:
    return DeviceSettings(_env_file=None, url=url, api_key=key, state_dir=state, **more)  # type: ignore[arg-type, call-arg]


@contextlib.asynccontextmanager
async def endpoint(
    settings: DeviceSettings, drafter: Drafter | None, *, local: bool = False, key: str = ""
) -> AsyncIterator[str]:
    """Gives its base URL, without /v1."""
    async with dispatching(settings, drafter, local=local) as dispatcher:
        config = uvicorn.Config(
            create_app(dispatcher, key=key), port=0, lifespan="off", log_config=None, access_log=False, ws="none"
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
