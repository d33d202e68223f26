"""Several iterators read at once: the choices of an answer as their tokens come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(
    iterators: Sequence[AsyncGenerator[T, None]], *, quiet_s: float | None = None
) -> AsyncGenerator[tuple[int, T | None] | None, None]:
    """(index, item) as they come; item None: that one is over. None alone: nothing came for `quiet_s`.

    Closing it closes them all. Raises what they raise.
    """
    waiting = {asyncio.ensure_future(_next(iterator)): index for index, iterator in enumerate(iterators)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=quiet_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield None
            for task in done:
                index, item = waiting.pop(task), task.result()
                if item is not None:
                    waiting[asyncio.ensure_future(_next(iterators[index]))] = index
                yield index, item
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for iterator in iterators:
            await iterator.aclose()


async def _next(iterator: AsyncGenerator[T, None]) -> T | None:
    return await anext(iterator, None)
