"""What vLLM is asked for, and what is made of its outputs, without vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.engine.base import Request
from app.engine.vllm_reader import Reader, refuse, sampling_fields
from app.engine.vllm_stream import KEY, Opening, Report
from edge.protocol.errors import EngineFailed, InvalidRequest
from edge.protocol.frames import Sampling, TokenLogprob
from edge.script import ScriptVocabulary
from tests.app.engine.requests import GREEDY, SEEDED, request

VOCABULARY = ScriptVocabulary()


def reader(asked: Request, max_tokens: int = 40) -> Reader:
    return Reader(asked, VOCABULARY, max_tokens=max_tokens)


def output(tokens: bytes | list[int], accepted: int = 0, steps: int = 1, reason: str | None = None, **more: Any) -> Any:
    """Like vLLM's RequestOutput."""
    report = Report(9, 8, accepted, 1, steps, 0.05, 0.01)
    completion = SimpleNamespace(token_ids=list(tokens), finish_reason=reason, logprobs=more.get("logprobs"))
    return SimpleNamespace(
        outputs=[completion], finished=reason is not None, kv_transfer_params={KEY: list(report), "other": 1}
    )


def test_counts_are_cumulative_so_merged_outputs_lose_none() -> None:
    read = reader(request())
    assert read.take(output(b"ab", accepted=1)).drafted == 1
    progress = read.take(output(b"cdefg", accepted=4, steps=3))
    assert (progress.tokens, progress.drafted, progress.finished) == (tuple(b"cdefg"), 3, None)
    assert progress.usage is not None
    assert (progress.usage.accepted, progress.usage.steps, progress.usage.completion) == (4, 3, 7)
    assert (progress.step_s, progress.queue_s) == (0.05, 0.01)


def test_the_output_ends_with_the_token_that_completes_a_stop_string() -> None:
    read = reader(request(stop=("lo w",)))
    assert read.take(output(b"hello")).finished is None
    progress = read.take(output(b" world"))
    assert progress.tokens == tuple(b" w")
    assert progress.finished is not None
    assert (progress.finished.reason, progress.finished.kept_bytes, progress.finished.length) == ("stop", 3, 7)


@pytest.mark.parametrize(
    ("said", "means", "error"),
    [
        ("stop", "stop", None),
        ("length", "length", None),
        ("abort", "cancelled", None),
        ("error", "error", EngineFailed.code),
        ("what is that", "error", EngineFailed.code),
    ],
)
def test_reasons(said: str, means: str, error: str | None) -> None:
    finished = reader(request()).take(output(b"a", reason=said)).finished
    assert finished is not None
    assert (finished.reason, finished.error) == (means, error)


def test_what_was_carried_may_be_the_whole_output() -> None:
    assert reader(request(committed=tuple(b"abc"))).replay() is None
    assert reader(request(committed=tuple(b"abc")), max_tokens=3).replay() == "length"
    assert reader(request(committed=(97, VOCABULARY.end))).replay() == "stop"
    assert reader(request(committed=tuple(b"abc"), stop=("b",))).replay() == "stop"


def test_logprobs_are_in_rank_order_and_finite() -> None:
    read = reader(request(logprobs=2))
    entry = {
        5: SimpleNamespace(logprob=float("-inf"), rank=9),
        7: SimpleNamespace(logprob=-2.0, rank=2),
        6: SimpleNamespace(logprob=-1.0, rank=1),
    }
    progress = read.take(output([5], logprobs=[entry]))
    assert progress.logprobs == (TokenLogprob(5, -9999.0, ((6, -1.0), (7, -2.0))),)


def test_limits_are_of_the_whole_output_and_vllm_is_told_of_the_rest() -> None:
    asked = request(committed=tuple(b"abc"), min_tokens=5, policy="hold", hold_s=0.5)
    fields = sampling_fields(asked, VOCABULARY, max_tokens=10, held_tokens=64)
    assert (fields["max_tokens"], fields["min_tokens"]) == (7, 2)
    assert fields["stop_token_ids"] == [VOCABULARY.end]
    assert fields["extra_args"][KEY] == Opening(
        asked.id, "hold", 0.5, 64, tuple(b"abc"), VOCABULARY.size, asked.tenant, asked.weight, asked.drafter
    )


def test_choices_and_what_is_gone_on_with_have_noise_of_their_own() -> None:
    def seed(sampling: Sampling, committed: tuple[int, ...] = ()) -> int | None:
        asked = request(sampling=sampling, committed=committed)
        found: int | None = sampling_fields(asked, VOCABULARY, max_tokens=40, held_tokens=64)["seed"]
        return found

    seeds = [seed(SEEDED), seed(Sampling(seed=11, choice=1)), seed(SEEDED, (1,)), seed(SEEDED, (1, 2))]
    assert len(set(seeds)) == 4
    assert all(found is not None and 0 <= found < 2**63 for found in seeds)
    assert seed(SEEDED) == seed(SEEDED)
    assert seed(GREEDY) is None


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("min_p", request(sampling=Sampling(min_p=0.1, seed=1))),
        ("logit_bias", request(sampling=Sampling(bias=((3, 1.0),), seed=1))),
        ("committed", request(sampling=Sampling(presence_penalty=1.0, seed=1), committed=(1,))),
    ],
)
def test_what_vllm_cannot_combine_is_refused_by_name(field: str, asked: Request) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}"):
        refuse(asked)


def test_the_rest_is_taken() -> None:
    refuse(request(sampling=Sampling(presence_penalty=1.0, repetition_penalty=1.1, seed=1)))
    refuse(request(sampling=SEEDED, committed=(1,)))
