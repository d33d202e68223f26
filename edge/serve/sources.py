"""Where a job's tokens come from: the hybrid stream, or the drafter alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from edge.drafters.base import Drafter
from edge.events import Committed, Ended
from edge.generate import Generate
from edge.openai.job import Job
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Policy, Reason, TokenLogprob, Usage
from edge.runtime import Runtime
from edge.worker import Worker


@dataclass(frozen=True, slots=True)
class Grown:
    """Tokens that are output now. `logprobs`: one for each, or none at all."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Over:
    """The last item."""

    reason: Reason
    kept_bytes: int | None
    usage: Usage


Source = Callable[[Job], AsyncGenerator[Grown | Over, None]]


def hybrid(runtime: Runtime, model: str, *, policy: Policy | None, coupled: bool) -> Source:
    """Drafted here, decided by the target. Leaving a generator early cancels its stream; raises as `generate` does."""

    async def source(job: Job) -> AsyncGenerator[Grown | Over, None]:
        request = Generate(
            model=model,
            prompt=job.prompt,
            sampling=job.sampling,
            max_tokens=job.max_tokens,
            min_tokens=job.min_tokens,
            stop=job.stop,
            logprobs=job.logprobs,
            policy=policy,
            coupled=coupled,
        )
        async with aclosing(runtime.generate(request)) as events:
            async for event in events:
                match event:
                    case Committed():
                        yield Grown(tuple(token.id for token in event.tokens), event.logprobs)
                    case Ended():
                        yield Over(event.reason, event.kept_bytes, event.usage)

    return source


def alone(drafter: Drafter, vocabulary: Vocabulary) -> Source:
    """The drafter's own answer, verified by nobody. It has no logprobs: they are promised to be the target's."""

    async def source(job: Job) -> AsyncGenerator[Grown | Over, None]:
        worker = Worker()
        continuation = await worker.run(lambda: drafter.begin(job.prompt, job.sampling))
        text = OutputText(job.stop)
        count, reason = 0, "length"
        try:
            while count < job.max_tokens:
                proposal = await worker.run(continuation.propose)
                if proposal is None:  # its context is full, or its seats are taken
                    break
                count += 1
                yield Grown((proposal.token,))
                stopped = text.push(vocabulary.piece(proposal.token), stoppable=count >= job.min_tokens)
                if proposal.token in vocabulary.ends or stopped:
                    reason = "stop"
                    break
                text.take()
        finally:
            worker.submit(continuation.close)  # behind a call under way
            await worker.close()
        yield Over("stop" if reason == "stop" else "length", text.kept_bytes, Usage(len(job.prompt), count))

    return source
