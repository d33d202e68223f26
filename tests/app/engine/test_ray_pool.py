"""Replicas as Ray actors: in processes of their own, which are really killed. The pool's rules are tested in
test_pool.py.
"""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from app.engine.base import Request
from app.engine.place import ReplicaLost
from app.engine.ray_pool import RayPool
from app.engine.scripted import ScriptedEngine
from edge.models import default_directory, pair
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Message
from edge.script import ScriptVocabulary
from tests.app.engine.requests import GREEDY, SEEDED, read, read_drafting, request, script
from tests.app.engine.test_pool import grown, index_of
from tests.app.serving import until

TARGET = pair(default_directory()).target
pytestmark = [
    pytest.mark.ray,
    # Not importorskip: what Ray reads from the environment as it is imported is the pool's to set.
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray isn't installed"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:ray", "ignore::FutureWarning:ray"),
]


def scripted() -> AbstractContextManager[Vocabulary]:
    return nullcontext(ScriptVocabulary())


def pool(build: Callable[[], Any], vocabulary: Callable[[], AbstractContextManager[Vocabulary]]) -> RayPool:
    return RayPool(build, vocabulary, replicas=2, cpus=0.0, streams=16)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ray_pool() -> AsyncIterator[RayPool]:
    started = pool(partial(ScriptedEngine, step_s=0.01, streams=16), scripted)
    await started.start()
    yield started
    await started.stop()


def kill(ray_pool: RayPool, index: int) -> None:
    os.kill(ray_pool.replicas()[index].pid, signal.SIGKILL)


async def both_up(ray_pool: RayPool) -> None:
    await until(lambda: all(replica.state == "up" for replica in ray_pool.replicas()), timeout_s=60)


async def test_streams_run_in_other_processes(ray_pool: RayPool) -> None:
    prompts = [(i, i + 1) for i in range(8)]
    generations = [ray_pool.submit(request(prompt)) for prompt in prompts]
    assert await asyncio.gather(*map(read, generations)) == [script().greedy(prompt, 40) for prompt in prompts]
    pids = {replica.pid for replica in ray_pool.replicas()}
    assert len(pids) == 2
    assert os.getpid() not in pids


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
async def test_sixteen_streams_go_on_when_a_process_is_killed(ray_pool: RayPool, sampling: Any) -> None:
    await both_up(ray_pool)
    prompts = [(i, i + 1, i + 2) for i in range(16)]
    plain = [ray_pool.submit(request(prompt, sampling=sampling, max_tokens=80)) for prompt in prompts]
    expected = await asyncio.gather(*map(read, plain))
    moved = ray_pool.moved
    generations = [ray_pool.submit(request(prompt, sampling=sampling, max_tokens=80)) for prompt in prompts]
    drafting = [read_drafting(g, tokens) for g, tokens in zip(generations[:8], expected[:8], strict=True)]
    readers = [asyncio.ensure_future(reading) for reading in (*drafting, *map(read, generations[8:]))]
    await grown(generations[-1], 10)
    kill(ray_pool, 0)
    assert await asyncio.gather(*readers) == expected
    assert ray_pool.moved > moved
    await both_up(ray_pool)
    assert ray_pool.replicas()[0].restarts > 0


async def test_a_killed_stream_is_refused_drafts_of_before(ray_pool: RayPool) -> None:
    await both_up(ray_pool)
    expected = script().greedy((4, 4), 60)
    generation = ray_pool.submit(request((4, 4), policy="hold", hold_s=1e6, max_tokens=60))
    generation.offer(0, 0, expected[:20])
    await grown(generation, 21)
    kill(ray_pool, index_of(ray_pool, generation))
    moved = ray_pool.moved
    await until(lambda: ray_pool.moved > moved)
    generation.offer(1, len(generation.ledger), expected[len(generation.ledger) :])
    assert await read(generation) == expected


async def test_cancel_and_drain_reach_the_process(ray_pool: RayPool) -> None:
    await both_up(ray_pool)
    generation = ray_pool.submit(request(max_tokens=1000))
    await grown(generation, 3)
    generation.cancel()
    await read(generation)
    assert generation.finished is not None
    assert generation.finished.reason == "cancelled"
    kept = ray_pool.submit(request((7, 7), max_tokens=100))
    await grown(kept, 3)
    pid = ray_pool.replicas()[index_of(ray_pool, kept)].pid
    await ray_pool.drain(index_of(ray_pool, kept), within_s=0.0)
    assert await read(kept) == script().greedy((7, 7), 100)
    await both_up(ray_pool)
    assert pid not in {replica.pid for replica in ray_pool.replicas()}


def _broken() -> ScriptedEngine:
    raise RuntimeError("there is no such model")


async def test_a_replica_that_can_not_start_says_why(ray_pool: RayPool) -> None:
    host: Any = copy.copy(ray_pool._host)  # on the Ray that is there
    host._build = _broken
    with pytest.raises(ReplicaLost, match="there is no such model"):
        await host.launch(0)


@pytest.mark.model
@pytest.mark.skipif(not TARGET.is_file(), reason="the embedded model is not in the model cache")
async def test_the_real_model_goes_on_elsewhere(ray_pool: RayPool) -> None:
    pytest.importorskip("llama_cpp")
    from app.engine.llama_cpp import LlamaCppEngine, open_vocabulary

    await ray_pool.stop()  # one Ray at a time
    build = partial(LlamaCppEngine, TARGET, model_id="smollm2", context=256, steady=True, streams=16)
    real = pool(build, partial(open_vocabulary, TARGET))
    await real.start()
    try:
        questions = ("What is a paceline?", "How do bees navigate?", "List ten fruits.", "What is entropy?")

        def ask(question: str) -> Request:
            prompt = real.vocabulary.render([Message("user", question)])
            return request(prompt, sampling=SEEDED, max_tokens=24)

        expected = await asyncio.gather(*(read(real.submit(ask(question))) for question in questions))
        generations = [real.submit(ask(question)) for question in questions]
        readers = [asyncio.ensure_future(read(generation)) for generation in generations]
        await asyncio.gather(*(grown(generation, 6) for generation in generations))
        kill(real, 0)
        assert await asyncio.gather(*readers) == expected
        assert real.moved == 2
    finally:
        await real.stop()


async def test_this_process_still_learns_how_its_children_end(ray_pool: RayPool) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
    assert await child.wait() == 3
