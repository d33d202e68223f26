"""Two gateways behind nginx, as deploy/nginx.conf has it, restarted one after the other under 50 streams."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.config import ROOT
from tests.faults.processes import Heard, Process, ask, connected, free_port, gateway, key_of, metric, started, until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
SOCKETS, STREAMS, TOKENS = 10, 50, 30


def nginx(folder: Path, upstreams: tuple[Process, ...]) -> Process:
    port = free_port()
    site = (ROOT / "deploy/nginx.conf").read_text()
    for written, taken in (("8001", upstreams[0].port), ("8002", upstreams[1].port), ("8000", port)):
        assert f"127.0.0.1:{written}" in site
        site = site.replace(f"127.0.0.1:{written}", f"127.0.0.1:{taken}")
    folder.mkdir()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    top = f"daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{ worker_connections 512; }}"
    (folder / "nginx.conf").write_text(f"{top} http {{ access_log off; {paths}\n{site} }}")
    assert NGINX is not None
    return Process([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")], port, "/", folder)


@asynccontextmanager
async def streams_without_end(url: str, key: str) -> AsyncIterator[list[int]]:
    """50 streams at a time over 10 sockets; how many each place has brought to its right end."""
    ended, stop = [0] * STREAMS, asyncio.Event()

    async def devices(number: int) -> None:
        async with connected(url, key) as runtime:

            async def again(place: int) -> None:
                while not stop.is_set():
                    await ask(runtime, place, TOKENS, Heard())
                    ended[place] += 1

            await asyncio.gather(*(again(place) for place in range(number, STREAMS, SOCKETS)))

    running = asyncio.gather(*(devices(number) for number in range(SOCKETS)))
    try:
        await until(lambda: running.done() or all(ended))
        yield ended
        stop.set()
        async with asyncio.timeout(60):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.skipif(NGINX is None, reason="nginx isn't installed (Debian: apt install nginx-light)")
async def test_a_rolling_restart_of_two_gateways_loses_no_stream(tmp_path: Path) -> None:
    data = tmp_path / "data"
    both = tuple(gateway(tmp_path / name, data=data, scripted_step_ms=30) for name in ("a", "b"))
    proxy = nginx(tmp_path / "nginx", both)
    async with started(*both, proxy), streams_without_end(proxy.url, key_of(data)) as ended:
        for one in both:
            assert await metric(one.url, "paceline_streams_held") > 5, "nginx spreads them"
            assert await one.end(signal.SIGTERM) == -signal.SIGTERM
            before = list(ended)
            await until(lambda: all(now > then for now, then in zip(ended, before, strict=True)))  # noqa: B023
            before = list(ended)
            await one.start()
            await until(lambda: all(now > then for now, then in zip(ended, before, strict=True)))  # noqa: B023
    assert all(count >= 5 for count in ended), "one before, and one in each part of the two restarts"
