"""The connection to the gateway: made when it is first wanted, and again once one has ended for good.

A socket that is merely lost is mended by the connection itself; streams go on over the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from edge.runtime import Runtime

Open = Callable[[], AbstractAsyncContextManager[Runtime]]


class Socket:
    """`open_` connects; what it raises, `runtime` raises."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._life = AsyncExitStack()
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()

    async def runtime(self) -> Runtime:
        """Raises EdgeError, or what the gateway answered to `hello`."""
        async with self._opening:
            if self._runtime is not None and self._runtime.connection.ended:
                await self.close()
            if self._runtime is None:
                self._runtime = await self._life.enter_async_context(self._open())
            return self._runtime

    async def close(self) -> None:
        """Idempotent."""
        self._runtime = None
        life, self._life = self._life, AsyncExitStack()
        await life.aclose()
