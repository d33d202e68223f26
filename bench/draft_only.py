"""`bench draft_only`: what an answer is worth whose target never saw the question.

Three answers to each prompt, greedy: the target's own, the device's draft model alone, and draft-only. The target then
judges all three with the prompt before it: perplexity of the answer, and how many of its tokens are the ones that it
would have said there itself. If draft-only is no better than the draft model alone, the cloud has added nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.gateway import Plan, gateway
from bench.prompts import PROMPTS
from bench.report import Report, machine
from edge.connection import Connection
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.evaluate import Reader, log_softmax
from edge.events import Committed, Ended
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Privacy, Sampling
from edge.protocol.ledger import agreement
from edge.runtime import Generate, Runtime

GREEDY = Sampling(temperature=0, seed=0)


@dataclass(frozen=True, slots=True)
class Answer:
    way: str
    prompt: int
    tokens: tuple[int, ...]
    corrected: int = 0
    """Tokens of the cloud's own, where a draft was not plausible to it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    answer: Answer
    losses: tuple[float, ...]
    """−log p of each token by the target, prompt before it, nats."""
    likeliest: int
    """Tokens that the target would have said itself."""
    same_beginning: int
    """Tokens from the first on that are those of the target's own answer."""


def command(report: Report, prompts: int, tokens: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("answers", total=3 * prompts)
        answers = asyncio.run(collect(prompts, tokens, lambda: progress.advance(task)))
    reader = Reader(pair(default_directory()).target, 1)
    try:
        judgements = [judged(reader, answer, answers) for answer in answers]
    finally:
        reader.close()
    rows = [row(way, judgements) for way in ("full", "draft_only", "local")]
    report.table(f"The target's judgement of {prompts} answers of at most {tokens} tokens", rows)
    report.result({"rows": rows, "prompts": prompts, "tokens": tokens, "machine": machine()})


async def collect(prompts: int, tokens: int, advance: Callable[[], None]) -> list[Answer]:
    answers = []
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway(Plan(engine="llama_cpp", streams=1)))
        drafter = LlamaCppDrafter(pair(default_directory()).draft, streams=2)  # one for the drafter alone
        stack.callback(drafter.close)
        url = f"http://127.0.0.1:{address.port}"
        connection = Connection(url, key=address.key, fingerprint=drafter.fingerprint)
        socket = await stack.enter_async_context(connection)
        runtime = await stack.enter_async_context(Runtime(socket, drafter))
        for prompt in range(prompts):
            answers.append(await ask(runtime, prompt, "full", tokens))
            advance()
            answers.append(await ask(runtime, prompt, "draft_only", tokens))
            advance()
            answers.append(await asyncio.to_thread(alone, drafter, prompt, tokens))
            advance()
    return answers


async def ask(runtime: Runtime, prompt: int, privacy: Privacy, tokens: int) -> Answer:
    messages = (Message("user", PROMPTS[prompt]),)
    request = Generate(messages=messages, sampling=GREEDY, max_tokens=tokens, privacy=privacy)
    output, corrected = list[int](), 0
    async with aclosing(runtime.generate(request)) as events:  # its drafter is wanted at once for the next answer
        async for event in events:
            if isinstance(event, Committed):
                output += [token.id for token in event.tokens]
                corrected += sum(token.origin != "accepted" for token in event.tokens)
            elif isinstance(event, Ended):
                return Answer(privacy, prompt, tuple(output), corrected)
    raise RuntimeError("the stream ended without saying so")


def alone(drafter: LlamaCppDrafter, prompt: int, tokens: int) -> Answer:
    continuation = drafter.begin(drafter.vocabulary.render([Message("user", PROMPTS[prompt])]), GREEDY)
    output: list[int] = []
    while len(output) < tokens and (proposal := continuation.propose()) is not None:
        output.append(proposal.token)
    continuation.close()
    return Answer("local", prompt, tuple(output))


def judged(reader: Reader, answer: Answer, answers: Sequence[Answer]) -> Judgement:
    own = next(a for a in answers if a.way == "full" and a.prompt == answer.prompt)
    prompt = reader.model.vocabulary.render([Message("user", PROMPTS[answer.prompt])])
    rows = reader.rows([*prompt, *answer.tokens])[len(prompt) - 1 : -1]
    likeliest = sum(int(np.argmax(row)) == token for row, token in zip(rows, answer.tokens, strict=True))
    losses = tuple(-log_softmax(row, token) for row, token in zip(rows, answer.tokens, strict=True))
    return Judgement(answer, losses, likeliest, agreement(answer.tokens, own.tokens))


def row(way: str, judgements: Sequence[Judgement]) -> dict[str, Any]:
    mine = [j for j in judgements if j.answer.way == way]
    count = sum(len(j.answer.tokens) for j in mine)
    return {
        "mode": way,
        "tokens": count,
        "perplexity": math.exp(sum(sum(j.losses) for j in mine) / count),
        "targets_own": sum(j.likeliest for j in mine) / count,
        "same_beginning": sum(j.same_beginning for j in mine) / len(mine),
        "cloud_share": sum(j.answer.corrected for j in mine) / count if way == "draft_only" else None,
    }
