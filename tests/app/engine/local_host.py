"""Replicas in this process and event loop: the pool and the replica as they are, without Ray between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from app.engine.base import Engine
from app.engine.place import Remote, ReplicaLost
from app.engine.replica import Replica


class LocalHost:
    """`builds`: what each launch builds, in order; the last one for all that follow. None: that launch fails."""

    def __init__(self, *builds: Callable[[], Engine] | None) -> None:
        self.launched: list[LocalReplica] = []
        self._builds = builds
        self._launches = 0

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        for replica in self.launched:
            replica.kill()
            await replica.replica.stop()

    async def launch(self, index: int) -> tuple[Remote, bytes]:
        build = self._builds[min(self._launches, len(self._builds) - 1)]
        self._launches += 1
        if build is None:
            raise ReplicaLost("there is no room for it")
        replica = LocalReplica(Replica(build))
        self.launched.append(replica)
        return replica, await replica.replica.start()


class LocalReplica:
    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.dead = asyncio.Event()
        self.silent = False
        self.held: list[bytes] | None = None
        """Mails that are kept back, if there is a list for them."""
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, data: bytes) -> None:
        if self.held is not None:
            self.held.append(data)
        elif not self.dead.is_set():
            task = asyncio.ensure_future(self.replica.post(data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def news(self) -> AsyncGenerator[bytes, None]:
        died = asyncio.ensure_future(self.dead.wait())
        try:
            async with aclosing(self.replica.news()) as news:
                while True:
                    told = asyncio.ensure_future(anext(news))
                    try:
                        await asyncio.wait([died, told], return_when=asyncio.FIRST_COMPLETED)
                        if self.dead.is_set():
                            raise ReplicaLost("killed")
                        data = await told
                    finally:
                        told.cancel()
                        await asyncio.wait([told])
                    if not self.silent:
                        yield data
        finally:
            died.cancel()

    async def stop(self) -> None:
        await self.replica.stop()
        self.kill()

    def kill(self) -> None:
        self.dead.set()


def alive(replicas: Sequence[LocalReplica]) -> int:
    return sum(not replica.dead.is_set() for replica in replicas)
