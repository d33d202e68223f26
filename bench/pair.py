"""A model pair, live: a gateway with the target, and this process as the device with the draft.

Each has a process, a core and one thread; between them are the networks' proxies, in a process of their own.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic

from bench.gateway import Name, Plan, cores, gateway, pinned, proxies
from bench.link import Link
from edge.connection import Connection, Timing
from edge.drafters.base import Drafter
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.drafters.ngram import NgramDrafter
from edge.events import Committed, Ended, Event
from edge.generate import Generate
from edge.models import Pair, default_directory, pair
from edge.protocol.frames import Message, Sampling
from edge.runtime import Runtime

_TIMING = Timing(ping_s=0.5)
"""So that the round trip is known early."""
_LENGTH = 96
"""Tokens that are drafted for nobody before it begins anew: as long as an answer."""


@dataclass(frozen=True, slots=True)
class Live(Generic[Name]):
    runtimes: dict[Name, Runtime]
    """For each network."""
    beside: Runtime
    """With an n-gram drafter, next to the gateway: no network."""
    cloud_pid: int
    drafter: Drafter


@asynccontextmanager
async def live(links: Mapping[Name, Link], files: Pair | None = None) -> AsyncIterator[Live[Name]]:
    """`files`: the embedded pair's, if none are given."""
    files = files or pair(default_directory())
    edge_core, cloud_core = cores()
    plan = Plan(engine="llama_cpp", target=str(files.target), core=cloud_core, streams=1)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway(plan))
        ports = await stack.enter_async_context(proxies(address.port, links))
        # Not before: a child begins where its parent is.
        stack.enter_context(pinned(edge_core))
        drafter = LlamaCppDrafter(files.draft, streams=1, threads=1)
        stack.callback(drafter.close)

        async def connect(port: int) -> Connection:
            url = f"http://127.0.0.1:{port}"
            connection = Connection(url, key=address.key, fingerprint=drafter.fingerprint, timing=_TIMING)
            return await stack.enter_async_context(connection)

        runtimes = {
            name: await stack.enter_async_context(Runtime(await connect(port), drafter)) for name, port in ports.items()
        }
        ngram = Runtime(await connect(address.port), NgramDrafter(), vocabulary=drafter.vocabulary)
        yield Live(runtimes, await stack.enter_async_context(ngram), address.pid, drafter)


@contextmanager
def drafting(drafter: Drafter, text: str) -> Iterator[None]:
    """Draft for nobody, without a pause, in a thread on this process's core.

    Both models of the pair share one machine's memory and caches, as a device and a cloud don't: a cloud-only stream
    beside this shows how much of a hybrid stream's time that costs. What is drafted behind is the question as a device
    has it: else the answer that comes next would find another prompt in the drafter's cache.
    """
    over = threading.Event()
    prompt = [1] if drafter.vocabulary is None else drafter.vocabulary.render([Message("user", text)])

    def work() -> None:
        continuation = drafter.begin(prompt, Sampling(temperature=0.0, seed=0))
        drafted = 0
        while not over.is_set():
            drafted += 1
            if continuation.propose() is None or drafted == _LENGTH:
                continuation.rollback(0)
                drafted = 0
        continuation.close()

    thread = threading.Thread(target=work, name="drafting for nobody")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(slots=True)
class Answer:
    tokens: tuple[int, ...]
    ended: Ended
    events: tuple[Event, ...] = ()
    """All but the last."""


async def ask(runtime: Runtime, request: Generate) -> Answer:
    """Raises RuntimeError for an answer without two tokens: it has no ITL."""
    events: list[Event] = []
    async for event in runtime.generate(request):
        if not isinstance(event, Ended):
            events.append(event)
            continue
        tokens = tuple(token.id for e in events if isinstance(e, Committed) for token in e.tokens)
        if event.reason not in ("stop", "length") or len(tokens) < 2:
            raise RuntimeError(f"an answer ended after {len(tokens)} tokens: {event.reason}")
        return Answer(tokens, event, tuple(events))
    raise RuntimeError("the stream ended without saying so")
