"""The engine under load and in trouble: full queues, failing models, and what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edge.protocol.errors import EngineFailed, InvalidRequest, Overloaded
from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler
from tests.app.engine.gate import gated, running
from tests.app.engine.requests import read, read_drafting, request


async def test_a_full_queue_refuses_with_a_time_and_takes_again_later() -> None:
    async with gated(streams=1, queue=4) as (engine, gate):
        first = engine.submit(request())
        await gate.entered.wait()
        gate.step()
        await anext(first.events())
        queued = [engine.submit(request()) for _ in range(2)]
        assert engine.load().waiting == 2
        with pytest.raises(Overloaded) as refusal:
            engine.submit(request())
        assert refusal.value.retry_after_s >= 1
        gate.open()
        assert all(len(tokens) == 40 for tokens in await asyncio.gather(read(first), *map(read, queued)))
        assert len(await read(engine.submit(request()))) == 40


async def test_who_has_filled_its_part_of_the_queue_is_refused_and_another_is_not() -> None:
    async with gated(streams=1, queue=8) as (engine, gate):
        running_one = engine.submit(request(tenant="greedy"))
        await gate.entered.wait()
        gate.step()
        await anext(running_one.events())
        greedy = [engine.submit(request(tenant="greedy")) for _ in range(4)]
        with pytest.raises(Overloaded, match="4 requests are waiting, 4 of them yours"):
            engine.submit(request(tenant="greedy"))
        others = [engine.submit(request(tenant="other")) for _ in range(2)]
        with pytest.raises(Overloaded):
            engine.submit(request(tenant="other"))
        newcomer = engine.submit(request(tenant="new"))
        assert engine.load().waiting_of == {"greedy": 4, "other": 2, "new": 1}
        gate.open()
        outputs = await asyncio.gather(*map(read, (running_one, *greedy, *others, newcomer)))
        assert all(len(tokens) == 40 for tokens in outputs)


async def test_a_broken_model_ends_all_streams_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with running(streams=1, fail_at=5) as engine:
        generations = [engine.submit(request()) for _ in range(3)]
        lengths = [len(tokens) for tokens in await asyncio.gather(*map(read, generations))]
        assert lengths == [5, 0, 0]
        for generation, length in zip(generations, lengths, strict=True):
            assert generation.finished is not None
            assert (generation.finished.reason, generation.finished.error) == ("error", "engine_failed")
            assert generation.finished.length == length
        assert "the script says" in (engine.failure() or "")
        with pytest.raises(EngineFailed):
            engine.submit(request())
    assert "engine_failed" in caplog.text


async def test_what_cannot_be_picked_ends_its_own_stream_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = Sampler.pick

    def failing(self: Sampler, *args: Any) -> int:
        if self.sampling.seed == 13:
            raise ZeroDivisionError("a fault of ours")
        return pick(self, *args)

    monkeypatch.setattr(Sampler, "pick", failing)
    async with running(streams=2) as engine:
        good, bad = engine.submit(request()), engine.submit(request(sampling=Sampling(seed=13)))
        assert [len(tokens) for tokens in await asyncio.gather(read(good), read(bad))] == [40, 0]
        assert bad.finished is not None
        assert (bad.finished.reason, bad.finished.error) == ("error", "engine_failed")
        assert engine.failure() is None
    assert "pick_failed" in caplog.text


async def test_stopping_ends_what_runs_and_what_waits() -> None:
    async with gated(streams=1) as (engine, gate):
        generations = [engine.submit(request(max_tokens=2000)) for _ in range(2)]
        await gate.entered.wait()
        gate.open()
        await engine.stop()
        await engine.stop()
        assert [g.finished and g.finished.reason for g in generations] == ["cancelled", "cancelled"]
        with pytest.raises(EngineFailed):
            engine.submit(request())


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ()},
        {"prompt": (1,) * 2048},
        {"prompt": (1,) * 2000, "committed": (1,) * 49},
        {"prompt": (512,)},
        {"committed": (-1,)},
        {"sampling": Sampling(temperature=0.0, bias=((512, 1.0),))},
    ],
)
async def test_what_could_never_run_is_refused(fields: dict[str, Any]) -> None:
    async with running() as engine:
        with pytest.raises(InvalidRequest):
            engine.submit(request(**fields))


async def test_nothing_that_is_called_on_the_event_loop_waits_for_the_model() -> None:
    """The model is stuck in a step all the while: a call that waited for it would never return."""
    async with gated(streams=2) as (engine, gate):
        generation = engine.submit(request())
        await gate.entered.wait()
        other = engine.submit(request())
        calls: list[Callable[[], object]] = [
            lambda: generation.offer(0, 0, [1, 2, 3]),
            generation.detach,
            generation.attach,
            generation.usage,
            other.cancel,
            engine.load,
            engine.failure,
        ]
        for call in calls:
            call()
        reading: Awaitable[Any] = asyncio.ensure_future(anext(generation.events()))
        await asyncio.sleep(0)
        gate.step()
        assert (await reading).start == 0
        generation.cancel()


async def test_the_load_says_what_is_going_on() -> None:
    async with gated(streams=2) as (engine, gate):
        assert (engine.load().running, engine.load().waiting, engine.load().context_total) == (0, 0, 4096)
        generations = [engine.submit(request()) for _ in range(3)]
        assert engine.load().waiting == 3
        await gate.entered.wait()
        gate.step()
        await anext(generations[0].events())
        load = engine.load()
        assert (load.running, load.waiting) == (2, 1)
        assert load.context_used == 10
        assert load.step_s > 0


async def test_a_prompt_that_begins_alike_is_not_computed_again_within_a_tenant() -> None:
    long = tuple(range(200))
    async with running() as engine:
        await read(engine.submit(request((*long, 1), max_tokens=1)))
        model = engine._loaded
        before = model.tokens  # type: ignore[union-attr]
        await read(engine.submit(request((*long, 2), max_tokens=1)))
        assert model.tokens - before == 1  # type: ignore[union-attr]
        await read(engine.submit(request((*long, 3), max_tokens=1, tenant="other")))
        assert model.tokens - before == 1 + 201  # type: ignore[union-attr]


async def test_a_stream_that_would_wait_too_long_is_refused_with_a_time_to_come_back() -> None:
    async with gated(streams=1, queue=8, queue_s=1.5) as (engine, gate):
        first = engine.submit(request())
        await gate.entered.wait()
        gate.step()
        await anext(first.events())
        queued = [engine.submit(request()) for _ in range(2)]  # a second each, as long as nothing better is known
        with pytest.raises(Overloaded) as refusal:
            engine.submit(request())
        assert refusal.value.retry_after_s >= 0.5
        gate.open()
        assert all(len(tokens) == 40 for tokens in await asyncio.gather(read(first), *map(read, queued)))


async def test_devices_are_told_where_drafting_ahead_is_not_worth_it() -> None:
    async with running(streams=2, token_s=0.002, window=16) as engine:
        generation = engine.submit(request(policy="auto", max_tokens=120))
        await read_drafting(generation, [1] * 120)
        assert generation.window == 1


async def test_the_cost_models_error_is_reported() -> None:
    async with running(streams=1, step_s=0.003) as engine:
        await read(engine.submit(request()))
        assert 0 < engine.load().step_error < 1
