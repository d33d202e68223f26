"""What becomes of streams as replicas come and go. The same replicas run as Ray actors in test_ray_pool.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from app.engine.base import Commit, Refused, Replicated
from app.engine.generation import PARK_AHEAD, Generation
from app.engine.place import IN_FLIGHT, ReplicaLost
from app.engine.pool import MAX_LOSSES, Pool
from app.engine.scripted import ScriptedEngine
from edge.protocol.errors import EngineFailed, InvalidRequest, Overloaded
from edge.protocol.frames import Sampling
from edge.script import ScriptVocabulary
from tests.app.engine.local_host import LocalHost, alive
from tests.app.engine.requests import GREEDY, PROMPT, SEEDED, read, request, script
from tests.app.serving import until

SLOW = partial(ScriptedEngine, step_s=0.001)
FOREVER_S = 1e6


@asynccontextmanager
async def running(host: LocalHost, replicas: int = 2, **options: Any) -> AsyncIterator[Pool]:
    pool = Pool(host, lambda: nullcontext(ScriptVocabulary()), replicas=replicas, retry_s=0.01, **options)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop()
        assert not pool._live
        assert not pool._homeless
        assert not alive(host.launched)


async def grown(generation: Generation, length: int) -> None:
    """Wait until the output has this length."""
    async with aclosing(generation.events(len(generation.ledger))) as changes:
        async for _ in changes:
            if len(generation.ledger) >= length:
                return


def index_of(pool: Pool, generation: Generation) -> int:
    place = pool._live[generation].place
    assert place is not None
    return place.index


async def lose(pool: Pool, host: LocalHost, index: int) -> None:
    """Kill a place's replica, and wait until another is up there."""
    restarts = pool.replicas()[index].restarts
    place = pool._places[index]
    next(replica for replica in host.launched if replica is place.remote).kill()
    await until(lambda: pool.replicas()[index].restarts > restarts)


async def test_streams_are_spread_and_do_not_mix() -> None:
    prompts = [(i, i + 1, i + 2) for i in range(12)]
    async with running(LocalHost(SLOW)) as pool:
        generations = [pool.submit(request(prompt)) for prompt in prompts]
        assert [replica.streams for replica in pool.replicas()] == [6, 6]
        assert await asyncio.gather(*map(read, generations)) == [script().greedy(prompt, 40) for prompt in prompts]
        assert [replica.streams for replica in pool.replicas()] == [0, 0]
        assert isinstance(pool, Replicated)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
async def test_a_lost_replicas_streams_go_on_without_a_token_lost_or_doubled(sampling: Any) -> None:
    prompts = [(i, i + 1, i + 2) for i in range(6)]
    async with running(LocalHost(SLOW)) as pool:
        plain = [pool.submit(request(p, sampling=sampling, max_tokens=80)) for p in prompts]
        expected = await asyncio.gather(*map(read, plain))
        generations = [pool.submit(request(p, sampling=sampling, max_tokens=80)) for p in prompts]
        readers = [asyncio.create_task(read(generation)) for generation in generations]
        await grown(generations[0], 20)
        pool._places[0].remote.kill()  # type: ignore[union-attr]
        assert await asyncio.gather(*readers) == expected
        assert pool.moved == 3
        assert len(pool.gaps_s) == 3
        for generation in generations:
            usage = generation.usage()
            # A token costs a step, and what was lost with the replica costs none.
            assert (usage.prompt, usage.completion, usage.steps) == (3, 80, 80)


async def test_an_edge_sends_its_tail_again_and_its_drafts_count_on() -> None:
    expected, host = script().greedy(PROMPT, 60), LocalHost(SLOW)
    async with running(host) as pool:
        generation = pool.submit(request(policy="hold", hold_s=FOREVER_S, max_tokens=60))
        generation.offer(0, 0, expected[:20])
        await grown(generation, 21)  # it now holds for a draft, for ever
        async with aclosing(generation.events(21)) as changes:
            refused = asyncio.ensure_future(anext(changes))
            await lose(pool, host, index_of(pool, generation))
            assert await refused == Refused(1)
        generation.offer(0, 21, expected[21:30])  # on its way since before: of no use, and no harm
        generation.offer(1, len(generation.ledger), expected[len(generation.ledger) :])
        assert await read(generation) == expected
        assert generation.usage().accepted > 30


async def test_a_failed_engine_is_a_lost_replica() -> None:
    host = LocalHost(partial(ScriptedEngine, fail_at=10), ScriptedEngine)
    async with running(host, replicas=1) as pool:
        assert await read(pool.submit(request())) == script().greedy(PROMPT, 40)
        assert pool.moved == 1


async def test_a_silent_replica_is_killed_and_its_streams_go_on() -> None:
    host = LocalHost(SLOW)
    async with running(host, replicas=1, silence_s=2.0) as pool:
        generation = pool.submit(request(max_tokens=60))
        host.launched[0].silent = True
        assert await read(generation) == script().greedy(PROMPT, 60)
        assert host.launched[0].dead.is_set()


async def test_a_stream_that_kills_replicas_is_ended() -> None:
    host = LocalHost(SLOW)
    async with running(host, replicas=1) as pool:
        generation = pool.submit(request(max_tokens=1000))
        reading = asyncio.create_task(read(generation))
        for _ in range(MAX_LOSSES + 1):
            await grown(generation, len(generation.ledger) + 1)
            await lose(pool, host, 0)
        tokens = await reading
        assert generation.finished is not None
        assert (generation.finished.reason, generation.finished.error) == ("error", EngineFailed.code)
        assert tokens == script().greedy(PROMPT, len(tokens))
        assert await read(pool.submit(request())) == script().greedy(PROMPT, 40)


async def test_without_a_replica_nothing_is_taken_until_one_is_back() -> None:
    host = LocalHost(SLOW, None, None, SLOW)
    async with running(host, replicas=1) as pool:
        host.launched[0].kill()
        await until(lambda: pool.failure() is not None)
        assert "no replica is up" in (pool.failure() or "")
        with pytest.raises(EngineFailed):
            pool.submit(request())
        await until(lambda: pool.failure() is None)
        assert await read(pool.submit(request())) == script().greedy(PROMPT, 40)


async def test_streams_without_a_home_for_too_long_end() -> None:
    host = LocalHost(SLOW, None)
    async with running(host, replicas=1, homeless_s=0.01) as pool:
        generation = pool.submit(request(max_tokens=1000))
        host.launched[0].kill()
        await read(generation)
        assert generation.finished is not None
        assert generation.finished.error == EngineFailed.code


async def test_a_stream_without_a_home_can_be_cancelled() -> None:
    host = LocalHost(SLOW, None)
    async with running(host, replicas=1) as pool:
        generation = pool.submit(request(max_tokens=1000))
        host.launched[0].kill()
        await until(lambda: bool(pool._homeless))
        generation.cancel()
        await read(generation)
        assert generation.finished is not None
        assert generation.finished.reason == "cancelled"


async def test_cancel_reaches_the_replica() -> None:
    async with running(LocalHost(SLOW)) as pool:
        generation = pool.submit(request(max_tokens=1000))
        await grown(generation, 3)
        generation.cancel()
        await read(generation)
        assert generation.finished is not None
        assert generation.finished.reason == "cancelled"
        assert pool.load().running == 0


async def test_a_parked_stream_stays_parked_where_it_goes() -> None:
    host = LocalHost(SLOW)
    async with running(host, replicas=1) as pool:
        generation = pool.submit(request(max_tokens=100))
        generation.detach()
        await until(lambda: len(generation.ledger) == PARK_AHEAD)
        await lose(pool, host, 0)
        other = pool.submit(request((9, 9)))
        assert await read(other) == script().greedy((9, 9), 40)
        assert len(generation.ledger) == PARK_AHEAD
        generation.attach()
        assert await read(generation) == script().greedy(PROMPT, 100)


async def test_full_queues_are_refused_and_moved_streams_wait_for_room() -> None:
    host = LocalHost(partial(SLOW, streams=1, queue=4))
    async with running(host, streams=1, queue=4) as pool:
        generations = [pool.submit(request((i, 1), max_tokens=200)) for i in range(2)]
        await asyncio.gather(*(grown(generation, 1) for generation in generations))  # both run
        generations += [pool.submit(request((i, 1))) for i in range(2, 6)]
        with pytest.raises(Overloaded) as overloaded:
            pool.submit(request())
        assert overloaded.value.retry_after_s >= 1
        other = pool.submit(request(tenant="other"))
        host.launched[0].kill()
        outputs = await asyncio.gather(*map(read, generations))
        assert await read(other) == script().greedy(PROMPT, 40)
        assert outputs == [script().greedy((i, 1), 200 if i < 2 else 40) for i in range(6)]


async def test_a_replica_that_refuses_gets_the_stream_later() -> None:
    """Its queue is smaller than the pool was told."""
    host = LocalHost(partial(SLOW, streams=1, queue=1))
    async with running(host, replicas=1, streams=1, queue=10) as pool:
        generations = [pool.submit(request((i, 1))) for i in range(5)]
        outputs = await asyncio.gather(*map(read, generations))
        assert outputs == [script().greedy((i, 1), 40) for i in range(5)]


async def test_bad_requests_are_refused_at_once_or_end_with_their_code() -> None:
    async with running(LocalHost(SLOW)) as pool:
        with pytest.raises(InvalidRequest):
            pool.submit(request((1, 99_999)))
        unfit = pool.submit(request(sampling=Sampling(temperature=0.0, bias=((99_999, 1.0),))))
        assert await read(unfit) == []
        assert unfit.finished is not None
        assert unfit.finished.error == InvalidRequest.code


async def test_drain_lets_streams_end_and_starts_anew() -> None:
    host = LocalHost(SLOW)
    async with running(host) as pool:
        generation = pool.submit(request())
        index = index_of(pool, generation)
        draining = asyncio.create_task(pool.drain(index, within_s=FOREVER_S))
        await until(lambda: pool.replicas()[index].state == "draining")
        other = pool.submit(request((9, 9)))
        assert index_of(pool, other) != index
        assert await read(generation) == script().greedy(PROMPT, 40)
        await draining
        await until(lambda: pool.replicas()[index].restarts == 1)
        assert pool.moved == 0
        await read(other)


async def test_drain_moves_what_does_not_end() -> None:
    async with running(LocalHost(SLOW)) as pool:
        generation = pool.submit(request(max_tokens=200))
        reading = asyncio.create_task(read(generation))
        await grown(generation, 5)
        await pool.drain(index_of(pool, generation), within_s=0.0)
        assert await reading == script().greedy(PROMPT, 200)
        assert pool.moved == 1


async def test_one_replica_can_be_drained_too() -> None:
    async with running(LocalHost(SLOW), replicas=1) as pool:
        generation = pool.submit(request(max_tokens=200))
        await grown(generation, 5)
        await pool.drain(0, within_s=0.0)
        assert await read(generation) == script().greedy(PROMPT, 200)


async def test_a_replica_that_is_behind_gets_its_mail_merged() -> None:
    host = LocalHost(SLOW)
    async with running(host, replicas=1) as pool:
        generation = pool.submit(request(policy="hold", hold_s=FOREVER_S, max_tokens=1000))
        await grown(generation, 1)
        held: list[bytes] = []
        host.launched[0].held = held
        for _ in range(3 * IN_FLIGHT):
            generation.offer(5, 1, (0,))
            await asyncio.sleep(0)
        assert len(held) <= IN_FLIGHT
        host.launched[0].held = None
        for data in held:
            await host.launched[0].replica.post(data)
        await until(lambda: pool._places[0]._taken == pool._places[0]._sent)
        generation.cancel()
        await read(generation)


async def test_a_pool_whose_replica_does_not_start_does_not_start() -> None:
    host = LocalHost(SLOW, None)
    pool = Pool(host, lambda: nullcontext(ScriptVocabulary()), replicas=2)
    with pytest.raises(ReplicaLost):
        await pool.start()
    assert not alive(host.launched)


async def test_a_replica_with_another_vocabulary_is_refused() -> None:
    class Other(ScriptVocabulary):
        def __init__(self) -> None:
            super().__init__()
            self.fingerprint = "another"

    pool = Pool(LocalHost(SLOW), lambda: nullcontext(Other()), replicas=1)
    with pytest.raises(ReplicaLost, match="vocabulary"):
        await pool.start()


async def test_stop_ends_all_streams() -> None:
    async with running(LocalHost(SLOW)) as pool:
        generation = pool.submit(request(max_tokens=1000))
        first = anext(generation.events())
        assert isinstance(await first, Commit)
    assert generation.finished is not None
    assert generation.finished.reason == "cancelled"
    with pytest.raises(EngineFailed):
        pool.submit(request())


async def test_a_cancelled_stream_does_not_move_when_its_replica_dies_first() -> None:
    """Found by the simulation: it went on at another replica, with nobody left who would cancel it."""
    host = LocalHost(SLOW)
    async with running(host) as pool:
        generation = pool.submit(request(max_tokens=2000))
        await grown(generation, 3)
        index = index_of(pool, generation)
        place = pool._places[index]
        dying = next(replica for replica in host.launched if replica is place.remote)
        dying.held = []
        generation.cancel()
        await until(lambda: bool(dying.held))
        await lose(pool, host, index)
        assert generation.finished is not None
        assert generation.finished.reason == "cancelled"
        assert not pool._live
        assert pool.moved == 0
