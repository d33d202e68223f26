"""`bench fairness`: what two tenants get of one target.

served_ratio: weights 3 and 1, both with more streams than the target has room for; the first's tokens per one of the
second's. itl_p99_shift: how much the 99th percentile of one's gaps between chunks grows while another opens hundreds
of streams on sockets that it never reads.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import numpy as np
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from bench.gateway import Address, Plan, gateway
from bench.load import Tally, keep_asking
from bench.report import Report, machine
from edge.protocol import frames

ADMIN = "admin-key-of-the-bench"
SLOTS = 8
STEP_S = 0.02
PROMPT = (104, 101, 108, 108, 111)
STALLED_TOKENS = 1500


async def tenant(address: Address, name: str, weight: float) -> str:
    """A key of a new tenant."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{address.port}/admin", headers=headers) as http:
        made = await http.post("/tenants", json={"name": name, "weight": weight})
        key = await http.post(f"/tenants/{name}/keys", json={})
        made.raise_for_status()
        key.raise_for_status()
        found: str = key.json()["key"]
        return found


async def served(seconds: float, *, clients: int = 2 * SLOTS) -> tuple[Tally, Tally]:
    """Of two tenants that both saturate the target, weights 3 and 1."""
    async with gateway(Plan(engine="scripted", step_s=STEP_S, streams=SLOTS, admin_key=ADMIN)) as address:
        stop, tallies = asyncio.Event(), (Tally(), Tally())
        asking = []
        for name, weight, tally in (("heavy", 3.0, tallies[0]), ("light", 1.0, tallies[1])):
            key = await tenant(address, name, weight)
            asking += [
                asyncio.create_task(keep_asking(address.port, key, tally, stop, model="scripted", tokens=30))
                for _ in range(clients)
            ]
        await asyncio.sleep(seconds)
        counted = tuple(Tally(t.requests, t.tokens, t.errors) for t in tallies)
        stop.set()
        await asyncio.gather(*asking)
    return counted[0], counted[1]


async def gaps(seconds: float, stalled: int, *, readers: int = SLOTS // 2) -> tuple[Tally, Tally]:
    """A tenant's gaps alone, and beside another's `stalled` sockets."""
    async with gateway(Plan(engine="scripted", step_s=STEP_S, streams=SLOTS, admin_key=ADMIN)) as address:
        reader, staller = await tenant(address, "reader", 1.0), await tenant(address, "staller", 1.0)
        stop, alone, beside = asyncio.Event(), Tally(), Tally()
        long = round(3 * seconds / STEP_S)
        options: dict[str, Any] = {"model": "scripted", "tokens": min(long, 1900), "gaps": True}
        current = Tally()
        asking = [
            asyncio.create_task(keep_asking(address.port, reader, current, stop, **options)) for _ in range(readers)
        ]
        await asyncio.sleep(2)
        current.gaps_s.clear()
        await asyncio.sleep(seconds)
        alone.gaps_s, current.gaps_s[:] = list(current.gaps_s), []
        async with AsyncExitStack() as sockets:
            for number in range(stalled):
                await sockets.enter_async_context(_stalled(address.port, staller))
                if number % 20 == 0:
                    await asyncio.sleep(0.05)
            current.gaps_s.clear()
            await asyncio.sleep(seconds)
            beside.gaps_s, beside.errors = list(current.gaps_s), current.errors
        stop.set()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return alone, beside


class _stalled:  # noqa: N801  (a context manager, used like a function)
    """A socket with a stream on it, of which nothing is read after `welcome`."""

    def __init__(self, port: int, key: str) -> None:
        self._connect = connect(
            f"ws://127.0.0.1:{port}/v1/verify",
            subprotocols=[Subprotocol(frames.MSGPACK)],
            compression=None,
            max_queue=1,
            ping_interval=None,
            close_timeout=0.1,
        )
        self._key = key

    async def __aenter__(self) -> None:
        codec = frames.edge_codec(frames.MSGPACK)
        socket = await self._connect.__aenter__()
        await socket.send(codec.encode(frames.Hello(frames.VERSION, auth=self._key)))
        await socket.recv()
        sampling = frames.Sampling(temperature=0)
        await socket.send(
            codec.encode(
                frames.Open(1, "scripted", prompt=PROMPT, sampling=sampling, max_tokens=STALLED_TOKENS, logprobs=20)
            )
        )

    async def __aexit__(self, *exception: Any) -> None:
        await self._connect.__aexit__(*exception)


def command(report: Report, seconds: float, stalled: int) -> None:
    heavy, light = asyncio.run(served(seconds))
    alone, beside = asyncio.run(gaps(seconds, stalled))
    before_ms, after_ms = (1e3 * float(np.percentile(tally.gaps_s, 99)) for tally in (alone, beside))
    data = {
        "seconds": seconds,
        "served_ratio": heavy.tokens / max(1, light.tokens),
        "errors": heavy.errors + light.errors + beside.errors,
        "stalled": stalled,
        "itl_p99_alone_ms": before_ms,
        "itl_p99_beside_ms": after_ms,
        "itl_p99_shift": after_ms / before_ms - 1,
    }
    report.table("Two tenants", [data])
    report.result({**data, "load_1m": machine()["load_1m"]})
