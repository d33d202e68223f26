"""vLLM plans a step while the one before runs (asynchronous scheduling), and devices' drafts are checked all the same.

Its default on a GPU; here on a CPU by a worker to which CUDA's streams are nothing (streamless.py). All else is vLLM's
own: the scheduler a step ahead, the model runner, positions that are corrected after the fact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from app.engine.vllm_engine import VllmEngine
from tests.vllm.conftest import vllm_engine
from tests.vllm.questions import QUESTIONS, answers, ask, read, until
from tests.vllm.test_distribution import test_first_and_second_tokens_have_the_models_distribution
from tests.vllm.test_hybrid import (
    test_a_right_draft_saves_steps_and_is_counted,
    test_eight_streams_together_say_what_they_say_without_drafts,
)
from tests.vllm.test_streams import (
    test_a_grammar_holds_whatever_is_drafted,
    test_a_held_stream_waits_for_its_draft_and_nobody_waits_with_it,
    test_a_wait_in_vain_ends_by_itself_when_nothing_else_runs,
    test_it_answers_and_the_end_token_ends_it,
    test_logprobs_come_with_every_token,
    test_nobody_reads_so_it_parks_and_goes_on_when_somebody_does,
    test_parked_streams_give_their_places_to_those_that_wait,
    test_penalties_count_the_output_with_and_without_drafts,
)

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]
__all__ = [
    "test_a_grammar_holds_whatever_is_drafted",
    "test_a_held_stream_waits_for_its_draft_and_nobody_waits_with_it",
    "test_a_right_draft_saves_steps_and_is_counted",
    "test_a_wait_in_vain_ends_by_itself_when_nothing_else_runs",
    "test_eight_streams_together_say_what_they_say_without_drafts",
    "test_first_and_second_tokens_have_the_models_distribution",
    "test_it_answers_and_the_end_token_ends_it",
    "test_logprobs_come_with_every_token",
    "test_nobody_reads_so_it_parks_and_goes_on_when_somebody_does",
    "test_parked_streams_give_their_places_to_those_that_wait",
    "test_penalties_count_the_output_with_and_without_drafts",
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine() -> AsyncIterator[VllmEngine]:
    engine = vllm_engine(ahead=True, arguments="--worker-cls tests.vllm.streamless.StreamlessWorker")
    await engine.start()
    yield engine
    await engine.stop()


async def test_it_is_vllms_own_asynchronous_scheduling(engine: VllmEngine) -> None:
    assert engine._llm.vllm_config.scheduler_config.async_scheduling
    assert engine._llm.vllm_config.max_concurrent_batches == 2


async def test_drafts_are_checked_behind_tokens_that_are_under_way(engine: VllmEngine) -> None:
    """All drafts are there from the start, so all steps but the first are planned before the one before has ended."""
    [reference] = await answers(engine, QUESTIONS[1:2], max_tokens=60)
    generation = engine.submit(ask(engine, QUESTIONS[1], max_tokens=60))
    generation.offer(0, 0, reference)
    assert await read(generation) == reference
    usage = generation.usage()
    assert usage.verified == usage.accepted
    assert usage.steps <= 10


async def test_a_wrong_draft_costs_what_was_planned_behind_it_and_nothing_else(engine: VllmEngine) -> None:
    [reference] = await answers(engine, QUESTIONS[1:2], max_tokens=60)
    generation = engine.submit(ask(engine, QUESTIONS[1], max_tokens=60))
    wrong = [*reference[:20], reference[20] + 1, *reference[21:]]
    generation.offer(0, 0, wrong)
    await until(generation, 21)
    head = len(generation.ledger)
    generation.offer(1, head, reference[head:])
    assert await read(generation) == reference
    assert generation.usage().accepted > 20
