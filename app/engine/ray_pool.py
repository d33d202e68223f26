"""Replicas as Ray actors, on this host or on a cluster. The only importer of ray.

Without an address a Ray of our own is started and stopped with the gateway: on loopback only, with a token that is made
for it, no dashboard, no usage statistics. With one, the gateway joins that cluster as a driver, and what the cluster
does (network, TLS, tokens) is its operator's business; the model files must lie at the same paths on all its nodes.
A Ray that this process uses already is used as it is, and left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from app.engine.base import Engine
from app.engine.place import Remote, ReplicaLost
from app.engine.pool import Pool
from app.engine.replica import Replica
from edge.openai.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100_000_000
"""Nothing of ours is stored there: mails and news are small and go directly from process to process."""
_STOP_S = 5.0
_OWN_RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so Ray calls what binds to loopback only; it works on all systems
    "RAY_worker_niceness": "0",  # 15 by default: anything else on the host would go before the models
    "RAY_prestart_worker_first_driver": "0",
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "1",  # engines may have processes of their own
}


class RayPool(Pool):
    def __init__(
        self,
        build: Callable[[], Engine],
        vocabulary: Callable[[], AbstractContextManager[Vocabulary]],
        *,
        replicas: int,
        address: str = "",
        cpus: float = 1.0,
        gpus: float = 0.0,
        start_s: float = 900.0,
        **options: Any,
    ) -> None:
        """`build` makes a replica's engine, in the replica's process; it is pickled. Raises ImportError without ray.

        `address`: of a cluster, as for `ray.init`; empty: a Ray of our own. `cpus` and `gpus`: what a replica takes of
        a node; one that takes no GPU sees none. `start_s`: how long a replica may take until its model is loaded.
        `options` are the pool's.
        """
        host = RayHost(build, replicas=replicas, address=address, cpus=cpus, gpus=gpus, start_s=start_s)
        super().__init__(host, vocabulary, replicas=replicas, **options)


class RayHost:
    """Implements app.engine.place.Host."""

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        replicas: int,
        address: str,
        cpus: float,
        gpus: float,
        start_s: float,
    ) -> None:
        if not address and "ray" not in sys.modules:
            _prepare_own_ray()
        import ray

        self._ray: Any = ray
        self._build = build
        self._replicas = replicas
        self._address = address
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}
        self._start_s = start_s
        self._opened = False
        self._actors: set[RayReplica] = set()

    async def open(self) -> None:
        """Raises ReplicaLost if there is no Ray to be had."""
        await asyncio.to_thread(self._open)
        _hear_of_children()

    async def close(self) -> None:
        for actor in list(self._actors):
            actor.kill()
        if self._opened:
            self._opened = False
            await asyncio.to_thread(self._ray.shutdown)

    async def launch(self, index: int) -> tuple[Remote, bytes]:
        """Raises ReplicaLost."""
        options = {**self._resources, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        replica = RayReplica(self._ray, self._ray.remote(Replica).options(**options).remote(self._build), self._actors)
        try:
            async with asyncio.timeout(self._start_s):
                return replica, await replica.start()
        except TimeoutError:
            replica.kill()
            raise ReplicaLost(f"replica {index} didn't start within {self._start_s:.0f} s") from None
        except BaseException:
            replica.kill()
            raise

    def _open(self) -> None:
        """In a thread: it takes seconds, and in the main thread Ray would take the process's signals."""
        logging.getLogger("ray").setLevel(logging.ERROR)
        if self._ray.is_initialized():
            return
        quiet = {"log_to_driver": False, "configure_logging": False}
        try:
            if self._address:
                self._ray.init(address=self._address, **quiet)
            else:
                self._open_local(quiet)
        except ReplicaLost:
            raise
        except Exception as error:  # what Ray raises here is not limited to its own errors
            raise ReplicaLost(f"Ray can't be used: {error}") from error
        self._opened = True

    def _open_local(self, quiet: dict[str, Any]) -> None:
        # What a replica takes is for clusters; here the operator has chosen how many there are.
        cpus = max(os.cpu_count() or 1, round(self._replicas * self._resources["num_cpus"] + 0.5))
        self._ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            **quiet,
        )
        needed, found = self._replicas * self._resources["num_gpus"], self._ray.cluster_resources().get("GPU", 0)
        if needed > found:
            self._ray.shutdown()
            raise ReplicaLost(
                f"{self._replicas} replicas take {needed:g} GPUs and this host has {found:g}: start fewer, or set"
                " PACELINE_REPLICA_GPUS to what each of them takes"
            )


def _hear_of_children() -> None:
    """With the subreaper above Ray ignores SIGCHLD in this process too: nobody here would learn how a child ended."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Python's view hasn't changed, the process's has


class RayReplica:
    """Implements app.engine.place.Remote."""

    def __init__(self, ray: Any, actor: Any, actors: set[RayReplica]) -> None:
        """`actors`: those that live; it is in there until it is killed."""
        self._ray = ray
        self._actor = actor
        self._post = actor.post.options(num_returns=0)
        self._actors = actors
        actors.add(self)

    async def start(self) -> bytes:
        """Raises ReplicaLost."""
        with _losses(self._ray.exceptions):
            data: bytes = await self._actor.start.remote()
        return data

    def post(self, data: bytes) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):  # `news` tells of it
            self._post.remote(data)

    async def news(self) -> AsyncGenerator[bytes, None]:
        with _losses(self._ray.exceptions):
            async for news in self._actor.news.remote():
                yield await news

    async def stop(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self._actor.stop.remote()
        self.kill()

    def kill(self) -> None:
        if self in self._actors:
            self._actors.remove(self)
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._actor)


def _prepare_own_ray() -> None:
    """Ray reads its environment as it is imported, and hands it on to its processes."""
    for name, value in _OWN_RAY.items():
        os.environ.setdefault(name, value)
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # or it would leave one in the home folder
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextlib.contextmanager
def _losses(errors: Any) -> Iterator[None]:
    """Ray's errors (`ray.exceptions`) as ReplicaLost."""
    try:
        yield
    except errors.RayTaskError as error:  # raised in the replica
        raise ReplicaLost(str(error.cause)) from error
    except errors.RayError as error:
        text = " ".join(str(error).split())
        _, _, detail = text.partition("Worker exit detail: ")
        raise ReplicaLost(f"its process is gone: {detail[:120]}" if detail else text[:300]) from error
