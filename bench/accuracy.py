"""`bench wan`: how exactly the delaying proxy delays. Round trips of 20 bytes to an echo server, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.gateway import networks
from bench.report import Report


async def run(
    rtts_ms: Sequence[float], trips: int, advance: Callable[[], None] = lambda: None
) -> list[dict[str, float]]:
    """Milliseconds that a round trip takes, for each proxy."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rows = []
    async with server, networks(port, list(rtts_ms)) as ports:
        for rtt_ms, proxy in ports.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
            taken = []
            for _ in range(trips):
                began = time.perf_counter()
                writer.write(bytes(20))
                await reader.readexactly(20)
                taken.append((time.perf_counter() - began) * 1e3)
            writer.close()
            await writer.wait_closed()
            low, middle, high = (float(value) for value in np.quantile(taken, (0, 0.5, 0.99)))
            rows.append({"rtt_ms": rtt_ms, "least_ms": low, "median_ms": middle, "p99_ms": high})
            advance()
    return rows


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def command(report: Report, rtts_ms: Sequence[float], trips: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("proxies", total=len(rtts_ms))
        rows: list[dict[str, Any]] = list(asyncio.run(run(rtts_ms, trips, lambda: progress.advance(task))))
    report.table("A round trip through the proxy, ms", rows)
    report.result({"trips": trips, "rows": rows})
