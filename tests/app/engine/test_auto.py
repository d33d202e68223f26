"""What policy `auto` promises, on the real scheduler and the real drafting state machine under a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from app.engine.acceptance import Acceptances
from app.engine.auto import Auto, Outlook, Savings, Turn
from tests.app.engine.virtual import CostOf, Link, World, rate

GUARANTEE = 1.03
GOOD, DISTANT = Link(alpha=0.9, draft_s=0.012, rtt_s=0.002), Link(alpha=0.8, draft_s=0.01, rtt_s=0.08)
POOR, WRONG = Link(alpha=0.5, draft_s=0.02, rtt_s=0.03), Link(alpha=0.1, draft_s=0.005, rtt_s=0.01)


def measured(points_ms: dict[int, float]) -> CostOf:
    """Milliseconds by tokens, between which a line is drawn; beyond the last they grow in proportion."""

    def seconds(tokens: int, _: int) -> float:
        for (a, from_ms), (b, to_ms) in pairwise(points_ms.items()):
            if a <= tokens <= b:
                return (from_ms + (to_ms - from_ms) * (tokens - a) / (b - a)) / 1000
        last = max(points_ms)
        return points_ms[last] * tokens / last / 1000

    return seconds


F16 = measured({1: 35, 2: 58, 4: 61, 8: 97, 16: 117, 32: 245, 64: 453})
Q4 = measured({1: 19, 2: 36, 4: 54, 8: 118, 16: 159, 32: 427, 64: 807})


def roofline(tokens: int, context: int) -> float:
    return max(0.03, 0.03 * tokens / 24)


def linear(tokens: int, context: int) -> float:
    return 0.002 + 0.004 * tokens


def reading(tokens: int, context: int) -> float:
    """Long contexts: what a stream's part of a step costs is mostly its own cache."""
    return 0.02 + 0.0005 * tokens + 4e-6 * context


COSTS = {"F16": F16, "Q4": Q4, "roofline": roofline, "linear": linear, "reading": reading}


@pytest.mark.parametrize("link", [GOOD, DISTANT, POOR, WRONG], ids=["good", "distant", "poor", "wrong"])
@pytest.mark.parametrize("streams", [1, 6])
@pytest.mark.parametrize("cost", COSTS)
def test_auto_is_never_slower_than_1_03_times_the_target_alone(cost: str, streams: int, link: Link) -> None:
    alone = rate(COSTS[cost], [replace(link, drafts=False)] * streams, "eager")
    assert rate(COSTS[cost], [link] * streams, "auto") >= alone / GUARANTEE


@pytest.mark.parametrize("link", [GOOD, DISTANT], ids=["good", "distant"])
@pytest.mark.parametrize("cost", COSTS)
def test_at_saturation_auto_has_the_throughput_of_the_better_of_eager_and_hold(cost: str, link: Link) -> None:
    links = [link] * 12
    best = max(rate(COSTS[cost], links, "eager"), rate(COSTS[cost], links, "hold"))
    assert rate(COSTS[cost], links, "auto") >= 0.97 * best


@pytest.mark.parametrize("cost", ["F16", "roofline", "reading"])
def test_good_drafts_and_wrong_ones_together_are_told_apart(cost: str) -> None:
    links = [GOOD, WRONG] * 3
    alone = rate(COSTS[cost], [replace(link, drafts=False) for link in links], "eager")
    best = max(alone, rate(COSTS[cost], links, "eager"), rate(COSTS[cost], links, "hold"))
    assert rate(COSTS[cost], links, "auto") >= 0.97 * best


def test_where_a_step_is_linear_in_tokens_hardly_any_draft_is_checked() -> None:
    world = World(linear, [GOOD] * 8, "auto")
    world.run()
    assert sum(device.stream.verifier.stats.verified for device in world.devices) < 0.05 * 8 * 400


def test_streams_worth_drafting_for_are_named_by_the_cost_and_not_by_what_is_pending() -> None:
    pays, not_ = World(roofline, [GOOD] * 2, "auto"), World(linear, [GOOD] * 2, "auto")
    pays.run()
    not_.run()
    assert all(worth for _, worth in pays.scheduler.worthwhile())
    assert not any(worth for _, worth in not_.scheduler.worthwhile())


def turn_of(outlook: Outlook, pending: int) -> Turn:
    return Turn(outlook, pending, context=100, limit=8, hold_s=1.0)


def test_without_savings_a_step_is_a_plain_one() -> None:
    auto = Auto()
    for tokens in (1, 2, 3, 4, 5):
        auto.cost.observe(tokens, 100, 0.03)
    turn = turn_of(Outlook(Acceptances().of("d", "t")), 4)
    assert auto.plan([turn], 0.0, others=0, room=8, busy=False).shares == (4,)
    auto.savings.seconds = -0.001
    assert auto.plan([turn], 0.0, others=0, room=8, busy=False).shares == (0,)


def test_savings_are_what_drafts_brought_over_the_target_alone() -> None:
    savings = Savings()
    savings.step(tokens=4, streams=2, seconds=0.03, plain_s=0.03)
    assert savings.seconds == pytest.approx(0.03, abs=0.001)
    savings.wait(0.5)
    savings.step(tokens=2, streams=2, seconds=0.03, plain_s=0.03)
    assert savings.seconds < -0.4


def test_a_draft_is_expected_an_interval_after_the_last_and_given_up_when_it_is_late() -> None:
    outlook = Outlook(Acceptances().of("d", "t"))
    outlook.arrived(1, 1.0, anew=False)
    assert outlook.expected(1.0) is None
    outlook.arrived(1, 1.1, anew=False)
    assert outlook.expected(1.1) == pytest.approx((1.2, 1.25))
    assert outlook.expected(1.3) is None


def test_after_a_rejection_the_next_draft_is_a_round_trip_away() -> None:
    outlook = Outlook(Acceptances().of("d", "t"))
    outlook.arrived(1, 1.0, anew=False)
    outlook.rejected(1.1)
    outlook.arrived(1, 1.5, anew=True)
    outlook.rejected(2.0)
    assert not outlook.flows
    assert outlook.expected(2.0) == pytest.approx((2.4, 2.6))
