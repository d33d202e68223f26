"""The tokens of all choices of a request, as they come, through its renderer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from edge.merging import merged
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
    async with aclosing(merged([source(job) for job in jobs])) as items:
        async for found in items:
            match found:
                case index, Grown() as grown:
                    yield renderer.push(index, grown.tokens, grown.logprobs)
                case index, Over() as over:
                    usages[index] = over.usage
                    yield renderer.finish(index, over.reason, over.kept_bytes)
    yield renderer.end(usages)


async def first_pieces(answer: AsyncGenerator[bytes, None]) -> bytes:
    """What there is to send with the first tokens; until they come another path can still be taken."""
    return await anext(answer) + await anext(answer)
