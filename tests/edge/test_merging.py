from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from edge.merging import merged


async def numbers(*found: int, closed: list[int] | None = None) -> AsyncGenerator[int, None]:
    try:
        for number in found:
            yield number
    finally:
        if closed is not None:
            closed.append(found[0])


async def silent() -> AsyncGenerator[int, None]:
    await asyncio.Event().wait()
    yield 0


async def test_all_items_come_each_iterators_in_order_and_each_end_is_told() -> None:
    seen: dict[int, list[int | None]] = {0: [], 1: []}
    async for found in merged([numbers(1, 2, 3), numbers(7)]):
        assert found is not None
        seen[found[0]].append(found[1])
    assert seen == {0: [1, 2, 3, None], 1: [7, None]}


async def test_silence_is_told() -> None:
    async with aclosing(merged([silent()], quiet_s=0.001)) as items:
        assert await anext(items) is None


async def test_closing_it_closes_all_even_those_that_were_not_read_to_the_end() -> None:
    closed: list[int] = []
    items = merged([numbers(1, 2, closed=closed), numbers(5, 6, closed=closed)])
    await anext(items)
    await items.aclose()
    assert sorted(closed) == [1, 5]


async def test_a_failure_is_raised_and_closes_the_others() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    closed: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        async for _ in merged([failing(), numbers(*range(10, 1000), closed=closed)]):
            pass
    assert closed == [10]
