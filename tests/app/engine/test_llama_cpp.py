"""The embedded engine on the embedded model.

With `steady`, logits don't depend on the batch, so these comparisons are exact: any difference is a fault of the
engine's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

pytest.importorskip("llama_cpp")
from app.engine.base import Request
from app.engine.llama_cpp import LlamaCppEngine
from edge.models import default_directory, pair
from edge.protocol.frames import Grammar, Message, Sampling
from tests.app.engine.requests import GREEDY, SEEDED, read, read_drafting, request

TARGET = pair(default_directory()).target
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not TARGET.is_file(), reason="the embedded model is not in the model cache"),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTIONS = (
    "What is a paceline?",
    "Write a story about a dragon who lived by the sea.",
    "Explain TCP slow start in detail.",
    "List ten fruits.",
    "How do bees navigate?",
    "Compose a poem on rain.",
    "What is entropy?",
    "Translate hello to French, German and Spanish.",
)
TOKENS = 16
CITY = json.dumps(
    {
        "type": "object",
        "properties": {
            "city": {"enum": ["Ulm", "Köln", "東京"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }
)


async def started(kv_tokens: int | None = None) -> LlamaCppEngine:
    engine = LlamaCppEngine(TARGET, model_id="smollm2", context=256, steady=True, kv_tokens=kv_tokens)
    await engine.start()
    return engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[LlamaCppEngine]:
    engine = await started()
    yield engine
    await engine.stop()


def ask(engine: LlamaCppEngine, question: str, sampling: Sampling = GREEDY, **fields: object) -> Request:
    prompt = engine.vocabulary.render([Message("user", question)])
    return request(prompt, sampling=sampling, **{"max_tokens": TOKENS, **fields})


async def answers(engine: LlamaCppEngine, sampling: Sampling) -> list[list[int]]:
    """Each question asked alone."""
    return [await read(engine.submit(ask(engine, question, sampling))) for question in QUESTIONS]


def corrupted(tokens: list[int]) -> list[int]:
    return [token if i % 3 else token ^ 1 for i, token in enumerate(tokens)]


async def test_it_answers(engine: LlamaCppEngine) -> None:
    tokens = await read(engine.submit(ask(engine, "What is the capital of France?")))
    assert "Paris" in b"".join(map(engine.vocabulary.piece, tokens)).decode()
    assert tokens[-1] in engine.vocabulary.ends


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
async def test_eight_streams_with_right_and_wrong_drafts_say_what_each_says_alone(
    engine: LlamaCppEngine, sampling: Sampling
) -> None:
    alone = await answers(engine, sampling)
    together = await asyncio.gather(*(read(engine.submit(ask(engine, q, sampling))) for q in QUESTIONS))
    assert together == alone
    drafts = [tokens if i % 2 else corrupted(tokens) for i, tokens in enumerate(alone)]
    generations = [
        engine.submit(ask(engine, q, sampling, policy="hold" if i % 3 else "eager", hold_s=0.05))
        for i, q in enumerate(QUESTIONS)
    ]
    assert await asyncio.gather(*map(read_drafting, generations, drafts)) == alone
    assert generations[1].usage().accepted > 0
    assert all(generation.usage().verified > generation.usage().accepted for generation in generations[::2])


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "sampled"])
async def test_under_a_grammar_drafts_of_any_kind_change_nothing_and_break_nothing(
    engine: LlamaCppEngine, sampling: Sampling
) -> None:
    """Right drafts, wrong ones, and some that the grammar forbids, of eight streams in the same steps."""
    constrained = msgspec.structs.replace(sampling, grammar=Grammar("json_schema", CITY))
    alone = [await read(engine.submit(ask(engine, question, constrained, max_tokens=48))) for question in QUESTIONS]
    prose = await read(engine.submit(ask(engine, QUESTIONS[1], sampling, max_tokens=48)))
    drafts = [(tokens, corrupted(tokens), prose)[i % 3] for i, tokens in enumerate(alone)]
    generations = [
        engine.submit(ask(engine, question, constrained, max_tokens=48, policy=("eager", "hold")[i % 2], hold_s=0.05))
        for i, question in enumerate(QUESTIONS)
    ]
    assert await asyncio.gather(*map(read_drafting, generations, drafts)) == alone
    for tokens, generation in zip(alone, generations, strict=True):
        value = json.loads(b"".join(map(engine.vocabulary.piece, tokens)))
        assert value["city"] in ("Ulm", "Köln", "東京")
        assert 1 <= value["days"] <= 9
        assert generation.finished is not None
        assert generation.finished.reason == "stop"
    assert sum(generation.usage().accepted for generation in generations) > 0
    assert all(generation.usage().verified > generation.usage().accepted for generation in generations[1::3])
    assert engine.failure() is None


async def test_the_seed_decides_and_nothing_else(engine: LlamaCppEngine) -> None:
    def sample(seed: int) -> Request:
        return ask(engine, "Compose a poem on rain.", Sampling(temperature=1.0, seed=seed))

    first, again, other = [await read(engine.submit(sample(seed))) for seed in (1, 1, 2)]
    assert first == again != other


async def test_a_reused_prefix_gives_the_same_answer_as_a_computed_one(engine: LlamaCppEngine) -> None:
    system = Message("system", "You are a patient teacher who answers in one short sentence and never in two.")
    prompts = [
        engine.vocabulary.render([system, Message("user", question)]) for question in ("What is rain?", "What is ice?")
    ]
    fresh = [await read(engine.submit(request(p, max_tokens=TOKENS, tenant=f"{i}"))) for i, p in enumerate(prompts)]
    reused = [await read(engine.submit(request(p, max_tokens=TOKENS, tenant="0"))) for p in (*prompts, *prompts)]
    assert reused == [*fresh, *fresh]


async def test_carried_output_goes_on_as_before(engine: LlamaCppEngine) -> None:
    whole = await read(engine.submit(ask(engine, QUESTIONS[1], SEEDED)))
    moved = engine.submit(ask(engine, QUESTIONS[1], SEEDED, committed=tuple(whole[:9]), tenant="elsewhere"))
    assert await read(moved, 9) == whole[9:]


async def test_short_of_cache_streams_wait_and_all_are_answered(engine: LlamaCppEngine) -> None:
    questions = QUESTIONS[:4]
    alone = [await read(engine.submit(ask(engine, question, max_tokens=8))) for question in questions]
    small = await started(kv_tokens=256)
    try:
        generations = [small.submit(ask(small, question, max_tokens=200)) for question in questions]
        readers = [asyncio.create_task(read(generation)) for generation in generations]
        for generation in generations:
            while len(generation.ledger) < 8:
                await generation._change()
            assert small.load().running == 1
            generation.cancel()
        assert [tokens[:8] for tokens in await asyncio.gather(*readers)] == alone
        assert small.failure() is None
    finally:
        await small.stop()


async def test_the_event_loop_runs_on_during_a_step(engine: LlamaCppEngine) -> None:
    """If a step held the loop or the interpreter, the loop would get round about once per step."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    generation = engine.submit(ask(engine, QUESTIONS[0]))
    await read(generation)
    counting.cancel()
    assert rounds > 20 * generation.usage().steps
