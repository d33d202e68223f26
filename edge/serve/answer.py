"""The tokens of all choices of a request, as they come, through its renderer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from edge.openai.job import Job
from edge.openai.render import Renderer
from edge.protocol.frames import Usage
from edge.serve.sources import Grown, Over, Source


async def pieces(jobs: Sequence[Job], renderer: Renderer, source: Source) -> AsyncGenerator[bytes, None]:
    """What is to be sent; the first piece comes before anything else has happened, the second with the first tokens.

    Closing it ends the streams. Raises what the source raises.
    """
    yield renderer.begin()
    usages = [Usage()] * len(jobs)
    async with aclosing(_merged([source(job) for job in jobs])) as items:
        async for index, item in items:
            if isinstance(item, Grown):
                yield renderer.push(index, item.tokens, item.logprobs)
            else:
                usages[index] = item.usage
                yield renderer.finish(index, item.reason, item.kept_bytes)
    yield renderer.end(usages)


async def first_pieces(answer: AsyncGenerator[bytes, None]) -> bytes:
    """What there is to send with the first tokens; until they come another path can still be taken."""
    return await anext(answer) + await anext(answer)


async def _merged(
    generators: Sequence[AsyncGenerator[Grown | Over, None]],
) -> AsyncGenerator[tuple[int, Grown | Over], None]:
    waiting = {asyncio.ensure_future(_next(generator)): index for index, generator in enumerate(generators)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index, item = waiting.pop(task), task.result()
                if item is not None:
                    waiting[asyncio.ensure_future(_next(generators[index]))] = index
                    yield index, item
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for generator in generators:
            await generator.aclose()


async def _next(generator: AsyncGenerator[Grown | Over, None]) -> Grown | Over | None:
    return await anext(generator, None)
