"""Drafts that come together go together, and none waits for the answer to another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from app.engine.vllm_messenger import Messenger
from tests.app.serving import until


class Core:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Sequence[Any]]] = []
        self.answers: list[asyncio.Future[Any]] = []

    async def call(self, name: str, argument: Sequence[Any]) -> Any:
        self.calls.append((name, argument))
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_call_a_turn_without_waiting_for_the_last() -> None:
    core = Core()
    messenger = Messenger(core.call, lambda *_: None, gap_s=0.0)
    messenger.offer("a", 0, 0, (1,))
    messenger.offer("b", 0, 0, (2,))
    await turns()
    messenger.offer("a", 0, 1, (3,))
    await turns()
    assert core.calls == [
        ("paceline_offer", [("a", 0, 0, (1,)), ("b", 0, 0, (2,))]),
        ("paceline_offer", [("a", 0, 1, (3,))]),
    ]
    await messenger.close()


async def test_refusals_come_back() -> None:
    core, refused = Core(), list[tuple[str, int]]()
    messenger = Messenger(core.call, lambda stream, epoch: refused.append((stream, epoch)), gap_s=0.0)
    messenger.offer("a", 0, 5, (1,))
    await turns()
    core.answers[0].set_result([["a", 1]])
    await turns()
    assert refused == [("a", 1)]


async def test_what_comes_while_too_much_is_under_way_waits_and_its_number_is_bounded() -> None:
    core = Core()
    messenger = Messenger(core.call, lambda *_: None, bound=3, gap_s=0.0)
    for i in range(40):
        messenger.offer("a", 0, i, (1,))
        await turns()
    assert len(core.calls) == 32
    core.answers[0].set_result([])
    await turns(5)
    assert core.calls[-1] == ("paceline_offer", [("a", 0, 32 + i, (1,)) for i in range(3)])
    await messenger.close()


async def test_a_dead_engine_is_no_fault_here() -> None:
    core = Core()
    messenger = Messenger(core.call, lambda *_: None, gap_s=0.0)
    messenger.offer("a", 0, 0, (1,))
    await turns()
    core.answers[0].set_exception(RuntimeError("gone"))
    await turns()
    messenger.park("a", None)
    await turns()
    assert core.calls[-1] == ("paceline_park", [("a", None)])
    await messenger.close()


async def test_what_comes_right_behind_a_call_goes_together() -> None:
    core = Core()
    messenger = Messenger(core.call, lambda *_: None, gap_s=0.02)
    for i in range(5):
        messenger.offer("a", 0, i, (1,))
        await turns()
    assert len(core.calls) == 1
    await until(lambda: len(core.calls) == 2)
    assert core.calls[1] == ("paceline_offer", [("a", 0, i, (1,)) for i in range(1, 5)])
    await messenger.close()
