"""What is killed, or has no disk left, and what becomes of the streams. Real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from app.config import ROOT
from app.tenants.repository import Repository, open_database
from tests.app import databases
from tests.faults.processes import Heard, Process, ask, connected, device, gateway, key_of, metric, started, until

STREAMS = 8
TOKENS = 100


@asynccontextmanager
async def under_way(serving: Process, key: str, tokens: int = TOKENS) -> AsyncIterator[list[Heard]]:
    """Streams over two sockets, each past its first tokens; leaving waits for their right ends."""
    heard = [Heard() for _ in range(STREAMS)]
    async with connected(serving.url, key) as one, connected(serving.url, key) as other:
        asking = [ask((one, other)[i % 2], i, tokens, each) for i, each in enumerate(heard)]
        streams = asyncio.gather(*asking)
        await until(lambda: streams.done() or all(len(each.tokens) > 5 for each in heard))
        assert not streams.done()
        yield heard
        async with asyncio.timeout(60):
            await streams


async def counted(url: str) -> int:
    """Output tokens in the database."""
    repository = Repository(open_database(url))
    rows = await repository.usage()
    await repository.close()
    return sum(row.counts.completion for row in rows)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
async def test_streams_outlive_their_gateway(tmp_path: Path, by: signal.Signals) -> None:
    serving = gateway(tmp_path / "gateway")
    async with started(serving), under_way(serving, key_of(tmp_path / "gateway/data")) as heard:
        status = await serving.end(by)
        assert status == -by, "of the signal itself, which is passed on after a clean stop"
        held = [len(each.tokens) for each in heard]
        assert max(held) < TOKENS, "none had ended"
        await serving.start()


async def test_a_device_that_is_killed_costs_the_gateway_nothing_for_long(tmp_path: Path) -> None:
    serving = gateway(tmp_path / "gateway", grace_s=0.5)
    async with started(serving):
        key = key_of(tmp_path / "gateway/data")
        command = [sys.executable, "-m", "tests.faults.edge", serving.url, key]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, env=environment) as edge:  # noqa: S603, ASYNC220 (it only forks)
            try:
                await until(lambda: _is(serving.url, "paceline_streams_held", at_least=4))
                async with under_way(serving, key):
                    edge.kill()
            finally:
                edge.kill()
        for name in ("paceline_streams_held", "paceline_engine_running", "paceline_sockets "):
            await until(lambda name=name: _is(serving.url, name, at_most=0))
        async with under_way(serving, key):
            pass


async def _is(url: str, name: str, *, at_least: float = 0, at_most: float = float("inf")) -> bool:
    return at_least <= await metric(url, name) <= at_most


@pytest.fixture
def postgres() -> Iterator[databases.Server]:
    """One to kill."""
    if (reason := databases.why_not()) is not None:
        pytest.skip(reason)
    with databases.postgresql() as server:
        yield server


@pytest.fixture
def database(postgres: databases.Server) -> str:
    return postgres.new_database()


async def test_streams_do_not_notice_a_database_that_dies_and_nothing_is_uncounted(
    tmp_path: Path, postgres: databases.Server, database: str
) -> None:
    serving = gateway(tmp_path / "gateway", database_url=database)
    async with started(serving), httpx2.AsyncClient(base_url=serving.url, timeout=10) as client:
        key = key_of(tmp_path / "gateway/data")
        async with under_way(serving, key):
            await asyncio.to_thread(postgres.kill)
            await until(lambda: _status(client, 503))
            assert (await client.get("/healthz")).status_code == 200
            known = await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
            assert known.status_code == 200, "a key that was seen a moment ago"
            unknown = await client.get("/v1/models", headers={"authorization": f"Bearer sk-pl-{'0' * 64}"})
            assert (unknown.status_code, unknown.json()["error"]["type"]) == (503, "server_error")
        await until(lambda: "usage.flush_failed" in serving.said)  # they ended while it was away
        await asyncio.to_thread(postgres.start)
        await until(lambda: _status(client, 200))
        await until(lambda: _counted(database, STREAMS * TOKENS))


async def _status(client: httpx2.AsyncClient, status: int) -> bool:
    return (await client.get("/readyz")).status_code == status


async def _counted(url: str, tokens: int) -> bool:
    found = await counted(url)
    assert found <= tokens, "and nothing twice"
    return found == tokens


async def test_streams_do_not_notice_a_full_disk_and_nothing_is_uncounted(tmp_path: Path) -> None:
    """No file may grow any more: what writing to a full disk does, without filling one."""
    serving = gateway(tmp_path / "gateway")
    async with started(serving):
        key = key_of(tmp_path / "gateway/data")
        limits = resource.prlimit(serving.pid, resource.RLIMIT_FSIZE)
        async with under_way(serving, key):
            resource.prlimit(serving.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        url = f"sqlite+aiosqlite:///{tmp_path}/gateway/data/paceline.db"
        assert serving.running is not None
        assert serving.running.poll() is None
        assert await counted(url) < STREAMS * TOKENS
        async with under_way(serving, key, tokens=30):  # new streams begin
            pass
        resource.prlimit(serving.pid, resource.RLIMIT_FSIZE, limits)
        await until(lambda: _counted(url, STREAMS * (TOKENS + 30)))


async def test_a_device_that_can_not_note_what_leaves_sends_nothing(tmp_path: Path) -> None:
    serving = gateway(tmp_path / "gateway")
    async with started(serving):
        edge = device(tmp_path / "device", serving.url, key_of(tmp_path / "gateway/data"))
        body = {"model": "scripted", "max_tokens": 8, "messages": [{"role": "user", "content": "x"}]}
        async with started(edge), httpx2.AsyncClient(base_url=edge.url, timeout=30) as client:
            limits = resource.prlimit(edge.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(edge.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
            refused = await client.post("/v1/chat/completions", json=body)
            assert refused.status_code >= 500
            assert "error" in refused.json()
            assert await metric(serving.url, "paceline_tokens_total") == 0
            resource.prlimit(edge.pid, resource.RLIMIT_FSIZE, limits)
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
        log = tmp_path / "device/state/disclosures.jsonl"
        assert all(json.loads(line) for line in log.read_text().splitlines())


def test_the_limit_above_is_what_a_full_disk_is(tmp_path: Path) -> None:
    """A write past RLIMIT_FSIZE is an OSError in Python, which ignores SIGXFSZ, as one to a full disk is."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    assert os.name == "posix"
    assert tmp_path.is_dir()
