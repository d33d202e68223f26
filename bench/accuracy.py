"""`bench wan`: how exactly the delaying proxy delays. Round trips of 20 bytes to an echo server, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.gateway import proxies
from bench.profiles import profile
from bench.report import Report


async def run(names: Sequence[str], trips: int, advance: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """Milliseconds that a round trip takes, for each network (profiles.py)."""
    links = {name: profile(name).link for name in names}
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rows: list[dict[str, Any]] = []
    async with server, proxies(port, links) as ports:
        for name, proxy in ports.items():
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
            row = {"rtt_ms": links[name].rtt_s * 1e3, "set_median_ms": links[name].median_s * 1e3}
            rows.append({"network": name, **row, "least_ms": low, "median_ms": middle, "p99_ms": high})
            advance()
    return rows


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def command(report: Report, names: Sequence[str], trips: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("proxies", total=len(names))
        rows = list(asyncio.run(run(names, trips, lambda: progress.advance(task))))
    report.table("A round trip through the proxy, ms", rows)
    for name in names:
        report.say(f"{name}: {profile(name).source}")
    report.result({"trips": trips, "rows": rows})
