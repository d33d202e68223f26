from __future__ import annotations

import math

import pytest

from app.engine.scheduler import Capacity
from app.plan.hardware import Linear, fixed_load, roofline
from app.plan.simulate import Arrival, Cluster, Outcome
from bench.events import Times, simulate, simulate_sync
from edge.drafters.scripted import right_with
from edge.protocol.frames import Policy

TOKENS = 300


def ample(sequences: int = 8) -> Capacity:
    return Capacity(sequences=sequences, context=2048, kv_tokens=sequences * 2048, step_tokens=4096, draft_tokens=64)


def alone(policy: Policy, alpha: float, rtt_s: float, draft_s: float = 0.010) -> Outcome:
    arrival = Arrival(
        at=0.0,
        tokens=TOKENS,
        policy=policy,
        draft_s=draft_s,
        right=right_with(alpha, 1),
        rtt_s=rtt_s,
        draft_length=6,
    )
    return Cluster(1, ample(), Linear(0.030), window=64).run([arrival])[0]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("rtt_s", [0.020, 0.080, 0.200])
def test_one_stream_takes_what_a_simulation_of_another_make_says(alpha: float, rtt_s: float) -> None:
    pattern = [right_with(alpha, 1)(position) for position in range(TOKENS)]
    times = Times(0.010, 0.030, rtt_s)
    for policy in ("eager", "hold"):
        found, expected = alone(policy, alpha, rtt_s), simulate(pattern, times, policy)
        # Pacing drafts less deep, and so has a token under way less often when it hears of a rejection.
        assert 0.92 * expected.itl_s < found.itl_s < 1.05 * expected.itl_s
        assert found.steps / TOKENS == pytest.approx(expected.steps_per_token, rel=0.03)
    found, expected = alone("sync", alpha, rtt_s), simulate_sync(pattern, times, 6)
    assert found.itl_s == pytest.approx(expected.itl_s, rel=0.02)


def test_without_a_drafter_a_token_takes_a_step_and_the_network_is_paid_once() -> None:
    found = alone("eager", 0.9, 0.080, draft_s=math.inf)
    assert found.itl_s == pytest.approx(0.030)
    assert found.ttft_s == pytest.approx(0.080 + 0.030)
    assert (found.steps, found.drafted, found.verified) == (TOKENS, 0, 0)


def test_right_drafts_that_come_fast_enough_set_the_pace() -> None:
    found = alone("hold", 1.0, 0.080)
    assert found.itl_s == pytest.approx(0.010, rel=0.05)
    assert found.wasted == 0


def test_every_stream_ends_and_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[Outcome]:
        arrivals = [
            Arrival(
                at=i * 0.01,
                tokens=40,
                policy=policy,
                draft_s=0.01,
                right=right_with(0.8, i),
                rtt_s=0.04,
                jitter_s=0.01,
                tenant="ab"[i % 2],
            )
            for i in range(40)
            for policy in ("eager", "hold", "sync")
        ]
        return Cluster(3, ample(4), Linear(0.02, 0.001), seed=seed).run(arrivals)

    first, second, other = run(0), run(0), run(1)
    assert len(first) == 120
    assert [outcome.itl_s for outcome in first] == [outcome.itl_s for outcome in second]
    assert [outcome.itl_s for outcome in first] != [outcome.itl_s for outcome in other]
    assert {outcome.replica for outcome in first} == {0, 1, 2}


def test_a_step_is_flat_to_the_knee_and_linear_behind_it() -> None:
    h100 = roofline("h100", "llama_70b_bf16", 2048)
    assert h100.single_s == pytest.approx(0.021, rel=0.01)  # what the fixed inputs say
    below, knee = int(h100.knee_tokens), math.ceil(h100.knee_tokens)
    assert h100.step_s(below, 1) == h100.step_s(1, 1)
    assert h100.step_s(2 * knee, 1) > 1.9 * h100.step_s(below, 1)
    assert h100.step_s(1, 100) > h100.step_s(1, 1)


def test_unknown_hardware_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="h100"):
        roofline("abacus", "llama_8b_bf16", 2048)
    assert fixed_load().slo_times_single_stream_step == (1.2, 1.5, 3.0)
