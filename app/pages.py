"""The pages' files, compressed on their way. WebAssembly is not: it is loaded once, and takes long to compress."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

_LEAST_BYTES: Final = 1024
"""Smaller files fit into a packet or two either way."""


class Pages:
    """An ASGI app."""

    def __init__(self, directory: Path) -> None:
        self._plain = StaticFiles(directory=directory, html=True)
        self._compressed = GZipMiddleware(self._plain, minimum_size=_LEAST_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._plain if scope["path"].endswith(".wasm") else self._compressed
        await app(scope, receive, send)
