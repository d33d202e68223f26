from __future__ import annotations

import asyncio

from bench.clients import checks_us
from bench.load import Tally, keep_asking, one_answer
from tests.app.conftest import running as running
from tests.app.serving import MODEL, Running


def _port(running: Running) -> int:
    return int(running.url.rpartition(":")[2])


async def test_whole_answers_are_counted_with_their_tokens(running: Running) -> None:
    tally, stop = Tally(), asyncio.Event()
    asking = asyncio.create_task(
        keep_asking(_port(running), running.key, tally, stop, model=MODEL, tokens=9, gaps=True)
    )
    while tally.tokens < 18:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    stop.set()
    await asking
    assert tally.errors == 0
    assert tally.tokens == 9 * tally.requests


async def test_a_refused_answer_and_a_gateway_that_is_not_there_are_errors(running: Running) -> None:
    tally = Tally()
    await one_answer(_port(running), "sk-pl-wrong", tally, model=MODEL, tokens=9)
    await one_answer(1, running.key, tally, model=MODEL, tokens=9)
    assert (tally.requests, tally.errors, tally.tokens) == (2, 2, 0)


async def test_what_key_and_quotas_cost_is_measured() -> None:
    assert 0 < await checks_us() < 1e6
