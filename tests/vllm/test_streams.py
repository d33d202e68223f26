"""A stream's life on vLLM: how it waits, how it ends, and what it costs."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.engine.base import Commit, Refused
from app.engine.generation import Generation
from app.engine.vllm_engine import VllmEngine
from edge.openai import structured
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Grammar, Sampling
from tests.vllm.questions import GREEDY, QUESTIONS, answers, ask, read, until

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]
STORY = QUESTIONS[1]


async def test_it_answers_and_the_end_token_ends_it(engine: VllmEngine) -> None:
    generation = engine.submit(ask(engine, "What is the capital of France?"))
    tokens = await read(generation)
    assert "Paris" in b"".join(map(engine.vocabulary.piece, tokens)).decode()
    assert tokens[-1] in engine.vocabulary.ends
    assert generation.finished is not None
    assert generation.finished.reason == "stop"
    assert generation.usage().steps == generation.usage().completion == len(tokens)


async def test_its_vocabulary_is_the_one_that_llama_cpp_finds_in_the_gguf(engine: VllmEngine) -> None:
    """So a device's GGUF drafter is known to mean the same by its ids."""
    assert engine.model.fingerprint == "4fb0fb28b7d159dc1f8b7136d8fef1996959583589184d5a18d20c7c08c7efbe"


async def test_a_held_stream_waits_for_its_draft_and_nobody_waits_with_it(engine: VllmEngine) -> None:
    [reference, other] = await answers(engine, (STORY, "List ten fruits."))
    held = engine.submit(ask(engine, STORY, policy="hold", hold_s=60.0))
    await until(held, 1)
    assert await read(engine.submit(ask(engine, "List ten fruits."))) == other
    assert len(held.ledger) == 1
    held.offer(1, 1, reference[1:6])
    await until(held, 7)
    assert held.ledger.tokens == reference[:7]
    assert held.usage().steps == 2
    held.cancel()


async def test_a_wait_in_vain_ends_by_itself_when_nothing_else_runs(engine: VllmEngine) -> None:
    [reference] = await answers(engine, (STORY,), max_tokens=6)
    assert await read(engine.submit(ask(engine, STORY, policy="hold", hold_s=0.2, max_tokens=6))) == reference


async def test_nobody_reads_so_it_parks_and_goes_on_when_somebody_does(engine: VllmEngine) -> None:
    [reference] = await answers(engine, (STORY,), max_tokens=60)
    generation = engine.submit(ask(engine, STORY, max_tokens=60))
    generation.park(9)
    await until(generation, 9)
    other = await read(engine.submit(ask(engine, "List ten fruits.")))
    assert len(other) > 9
    assert generation.ledger.tokens == reference[:9]
    generation.attach()
    assert await read(generation) == reference


async def test_parked_streams_give_their_places_to_those_that_wait(engine: VllmEngine) -> None:
    [reference, other] = await answers(engine, (STORY, "List ten fruits."))
    parked = [engine.submit(ask(engine, STORY)) for _ in range(8)]
    for generation in parked:
        generation.park(3)
    for generation in parked:
        await until(generation, 3)
    assert await answers(engine, ("List ten fruits.",) * 2) == [other, other]
    assert [generation.ledger.tokens for generation in parked] == [reference[:3]] * 8
    for generation in parked[:2]:
        generation.cancel()
    for generation in parked[2:]:
        generation.attach()
    assert await asyncio.gather(*map(read, parked[2:])) == [reference] * 6
    assert await engine._llm.engine_core.call_utility_async("paceline_streams") == []


async def test_cancelled_it_is_forgotten_everywhere(engine: VllmEngine) -> None:
    generation = engine.submit(ask(engine, STORY, max_tokens=200))
    await until(generation, 2)
    generation.cancel()
    assert generation.finished is not None
    assert generation.finished.reason == "cancelled"
    await answers(engine, ("List ten fruits.",))  # the abort went before
    assert await engine._llm.engine_core.call_utility_async("paceline_streams") == []
    assert engine.load().running == engine.load().waiting == 0


async def test_cancelled_before_vllm_knew_it(engine: VllmEngine) -> None:
    generation = engine.submit(ask(engine, STORY))
    generation.cancel()
    assert await read(generation) == []
    await answers(engine, ("List ten fruits.",))
    assert await engine._llm.engine_core.call_utility_async("paceline_streams") == []


async def test_a_stop_string_ends_the_output_with_the_token_that_completes_it(engine: VllmEngine) -> None:
    [reference] = await answers(engine, (STORY,))
    text = b"".join(map(engine.vocabulary.piece, reference)).decode()
    stop = text.split()[3]
    generation = engine.submit(ask(engine, STORY, stop=(stop,)))
    generation.offer(0, 0, reference)
    tokens = await read(generation)
    assert tokens == reference[: len(tokens)]
    assert generation.finished is not None
    assert generation.finished.reason == "stop"
    assert generation.finished.kept_bytes == len(text[: text.index(stop)].encode())


async def test_limits_are_of_the_whole_output(engine: VllmEngine) -> None:
    [reference] = await answers(engine, (STORY,))
    generation = engine.submit(ask(engine, STORY, committed=tuple(reference[:10]), max_tokens=14))
    assert await read(generation, 10) == reference[10:14]
    assert generation.finished is not None
    assert generation.finished.reason == "length"
    assert generation.usage().completion == 14
    whole = engine.submit(ask(engine, STORY, committed=tuple(reference), max_tokens=len(reference)))
    assert await read(whole, len(reference)) == []


async def test_the_first_tokens_cannot_end_it(engine: VllmEngine) -> None:
    question = "What is the capital of France?"
    [short] = await answers(engine, (question,))
    generation = engine.submit(ask(engine, question, min_tokens=len(short) + 4))
    generation.offer(0, 0, short)
    tokens = await read(generation)
    assert tokens[: len(short) - 1] == short[:-1]
    assert len(tokens) >= len(short) + 4
    assert not set(tokens[: len(short) + 3]) & engine.vocabulary.ends


async def test_a_draft_with_a_hole_is_refused_and_a_higher_epoch_is_taken(engine: VllmEngine) -> None:
    [reference] = await answers(engine, (STORY,))
    generation = engine.submit(ask(engine, STORY, policy="hold", hold_s=60.0))
    await until(generation, 1)
    generation.offer(1, 5, reference[5:9])
    assert await _refusal(generation) == Refused(2)
    generation.offer(2, 1, [*reference[1:5], engine.vocabulary.size])  # no such token: it must not get to the model
    generation.offer(3, 1, reference[1:5])
    await until(generation, 6)
    assert generation.ledger.tokens[:6] == reference[:6]
    generation.cancel()


async def _refusal(generation: Generation) -> Refused:
    async for event in generation.events(len(generation.ledger)):
        if isinstance(event, Refused):
            return event
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("drafted", [False, True])
async def test_logprobs_come_with_every_token(engine: VllmEngine, drafted: bool) -> None:
    [reference] = await answers(engine, (STORY,))
    generation = engine.submit(ask(engine, STORY, logprobs=3))
    if drafted:
        generation.offer(0, 0, reference)
    found = [entry async for event in generation.events() if isinstance(event, Commit) for entry in event.logprobs]
    assert [entry.token for entry in found] == reference
    assert all(len(entry.top) == 3 and entry.top[0] == (entry.token, entry.logprob) for entry in found)
    assert all(entry.logprob <= 0 for entry in found)


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        (Sampling(min_p=0.1, seed=1), "min_p"),
        (Sampling(bias=((3, 5.0),), seed=1), "logit_bias"),
        (Sampling(temperature=0.0, grammar=Grammar("json_schema", '{"type": "null"}')), "min_tokens"),
    ],
)
async def test_what_vllm_cannot_combine_is_refused_by_name(engine: VllmEngine, sampling: Sampling, field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        engine.submit(ask(engine, STORY, sampling=sampling, min_tokens=4))


async def test_penalties_count_the_output_with_and_without_drafts(engine: VllmEngine) -> None:
    sampling = Sampling(temperature=0.0, presence_penalty=1.5, frequency_penalty=1.0, repetition_penalty=1.2)
    [plain] = await answers(engine, (STORY,))
    [reference] = await answers(engine, (STORY,), sampling=sampling)
    assert reference != plain
    generation = engine.submit(ask(engine, STORY, sampling=sampling))
    generation.offer(0, 0, reference)
    assert await read(generation) == reference
    assert generation.usage().accepted > 0
    assert GREEDY.presence_penalty == 0


SCHEMA = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["dragon", "fish"]},
    },
    "required": ["age", "kind"],
    "additionalProperties": False,
}
CALL = {"type": "object", "properties": {"name": {"const": "f"}}, "required": ["name"], "additionalProperties": False}
GRAMMARS = {
    "schema": Grammar("json_schema", json.dumps(SCHEMA)),
    "tool call": Grammar(
        "lark", f'start: "<tool_call>\\n" call "\\n</tool_call>"\ncall: %json {structured.spaced(json.dumps(CALL))}'
    ),
}


@pytest.mark.parametrize("drafted", ["nothing", "right", "wrong", "forbidden"])
@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
async def test_a_grammar_holds_whatever_is_drafted(engine: VllmEngine, grammar: Grammar, drafted: str) -> None:
    sampling = Sampling(temperature=0.0, grammar=grammar)
    [plain] = await answers(engine, (STORY,), sampling=sampling, max_tokens=60)
    text = b"".join(engine.vocabulary.piece(token) for token in plain).decode()
    assert '"kind": "' in text or '{"name": "f"}' in text
    drafts = {
        "nothing": [],
        "right": plain,
        "wrong": [token if i % 3 else token + 1 for i, token in enumerate(plain)],
        "forbidden": [sorted(engine.vocabulary.ends)[0]] * len(plain),
    }[drafted]
    generation = engine.submit(ask(engine, STORY, sampling=sampling, max_tokens=60, policy="hold", hold_s=0.1))
    generation.offer(0, 0, drafts)
    assert await read(generation) == plain
    assert generation.finished is not None
    assert generation.finished.reason == "stop"
    if drafted == "right":
        assert generation.usage().accepted > 3
