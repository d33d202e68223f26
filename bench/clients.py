"""`bench clients`: many streaming clients at once on the scripted engine. Does anything fail, what does a streamed
token cost the gateway, does its memory stay flat, and what do key and quotas add to a request?
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from app.tenants.limits import Quotas
from app.tenants.repository import Repository, open_database
from app.tenants.service import Tenants
from app.tenants.terms import Terms
from bench.gateway import Plan, gateway
from bench.load import Tally, keep_asking
from bench.report import Report, machine

TOKENS = 60
"""Of each answer: a good second at the engine's pace."""
STEP_S = 0.02
CHECKS = 20_000


async def measure(clients: int, seconds: float, rounds: int, advance: Callable[[], None]) -> dict[str, float]:
    """`rounds` rounds of `seconds` together, after one to warm up."""
    async with gateway(Plan(engine="scripted", step_s=STEP_S, streams=clients, queue=2 * clients)) as address:
        process, tally, stop = psutil.Process(address.pid), Tally(), asyncio.Event()
        asking = [
            asyncio.create_task(keep_asking(address.port, address.key, tally, stop, model="scripted", tokens=TOKENS))
            for _ in range(clients)
        ]
        await asyncio.sleep(seconds / rounds)
        advance()
        tokens, loop_s, all_s = tally.tokens, _loop_s(process), _cpu_s(process)
        memory_mb = []
        for _ in range(rounds):
            await asyncio.sleep(seconds / rounds)
            memory_mb.append(process.memory_info().rss / 1e6)
            advance()
        made = tally.tokens - tokens
        loop_s, all_s = _loop_s(process) - loop_s, _cpu_s(process) - all_s
        stop.set()
        await asyncio.gather(*asking)
    return {
        "clients": clients,
        "seconds": seconds,
        "requests": tally.requests,
        "errors": tally.errors,
        "tokens_per_s": made / seconds,
        "cpu_us_per_token": 1e6 * loop_s / made,
        "cpu_us_per_token_with_engine": 1e6 * all_s / made,
        "rss_mb": memory_mb[-1],
        "rss_slope_mb_per_round": float(np.polyfit(range(rounds), memory_mb, 1)[0]) if rounds > 1 else 0.0,
    }


def _loop_s(process: psutil.Process) -> float:
    """CPU time of the event loop's thread, the gateway proper; the scripted engine has one of its own."""
    (own,) = (thread for thread in process.threads() if thread.id == process.pid)
    return float(own.user_time + own.system_time)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def checks_us() -> float:
    """What checking key and quotas adds to a request, with all quotas set, microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(open_database(f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}"))
        await repository.upgrade()
        tenants = Tenants(repository, secret="bench", cache_s=3600, clock=time.monotonic)  # noqa: S106
        bound = 10**9
        terms = Terms(requests_per_minute=bound, tokens_per_minute=bound, concurrent_streams=bound)
        await tenants.create_tenant("acme", terms)
        key, quotas = await tenants.create_key("acme", ""), Quotas(time.monotonic)
        await tenants.authenticate(key)
        began = time.perf_counter()
        for _ in range(CHECKS):
            tenant = await tenants.authenticate(key)
            assert tenant is not None  # noqa: S101
            quotas.request(tenant)
            quotas.admit(tenant, tokens=20, streams=1, running=1)
            quotas.spend_tokens(tenant, 100)
            quotas.standing(tenant)
        spent_s = time.perf_counter() - began
        await repository.close()
    return 1e6 * spent_s / CHECKS


def command(report: Report, clients: int, seconds: float, rounds: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("rounds", total=rounds + 1)
        data = asyncio.run(measure(clients, seconds, rounds, lambda: progress.advance(task)))
    data["auth_and_limits_us"] = asyncio.run(checks_us())
    report.table("Streaming clients, scripted engine", [data])
    report.result({**data, "load_1m": machine()["load_1m"]})
