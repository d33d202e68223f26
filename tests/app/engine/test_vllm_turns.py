"""What the plugin's scheduler decides, without vLLM: who goes first, and what streams of policy `auto` do."""

from __future__ import annotations

from collections.abc import Sequence

from app.engine.vllm_stream import KEY, Opening, RemoteStream
from app.engine.vllm_turns import Part, Seat, Turns
from edge.protocol.frames import Policy

LIMIT = 8
FLAT_S = 0.03


def stream(name: str = "s", tenant: str = "t", weight: float = 1.0, policy: Policy = "auto") -> RemoteStream:
    opening = Opening(name, policy, 1.0, 256, (), 1000, tenant, weight, "drafter")
    made = RemoteStream.of({KEY: list(opening)}, 100_000)
    assert made is not None
    return made


class Target:
    """Says 0, 1, 2, … in every stream, in steps of which the size sets the time."""

    def __init__(self, turns: Turns, streams: Sequence[RemoteStream], *, per_token_s: float = 0.0) -> None:
        self.turns, self.streams, self.per_token_s = turns, streams, per_token_s
        self.now = 100.0
        self.checked: list[int] = []
        for one in streams:
            turns.enter(one)

    def step(self) -> None:
        seats = [Seat(one, one.head, 0) for one in self.streams if one.decided]
        plan = self.turns.plan(seats, self.now, others=0, room=256)
        self.turns.planned(self.now, len(seats), plan)
        if plan.until is not None:
            self.turns.stepped((), self.now)
            self.now = plan.until
            return
        chosen = [(seat.stream, seat.stream.candidates(plan.shares[i], self.now)) for i, seat in enumerate(seats)]
        self.checked.append(sum(len(drafts) for _, drafts in chosen))
        before = [one.head for one, _ in chosen]
        self.now += FLAT_S + self.per_token_s * (len(chosen) + self.checked[-1])
        for one, drafts in chosen:
            right = [one.head + i for i in range(len(drafts) + 1)]
            agreed = next((i for i, token in enumerate(drafts) if token != right[i]), len(drafts))
            one.take(right[: agreed + 1], drafts, self.now, FLAT_S)
        parts = [
            Part(one, 1 + len(drafts), True, one.head, one.head - head)
            for (one, drafts), head in zip(chosen, before, strict=True)
        ]
        self.turns.stepped(parts, self.now)
        self.turns.look(seats, 256)


def draft(one: RemoteStream, epoch: int, *, right: bool, now: float) -> None:
    one.offer(epoch, one.head, [one.head + i + (0 if right else 1) for i in range(4)], now)


def test_right_drafts_are_checked_where_a_larger_step_costs_nothing() -> None:
    one = stream()
    target = Target(Turns(LIMIT), [one])
    for epoch in range(60):
        draft(one, epoch, right=True, now=target.now)
        target.step()
    assert sum(target.checked[-20:]) > 60
    assert one.worthwhile


def test_wrong_drafts_soon_arent_checked_any_more_where_they_cost_time() -> None:
    one = stream()
    target = Target(Turns(LIMIT), [one], per_token_s=0.02)
    for epoch in range(100):
        draft(one, epoch, right=False, now=target.now)
        target.step()
    assert sum(target.checked[-40:]) <= 4  # a trial now and then
    assert not one.worthwhile


def test_auto_never_falls_far_behind_the_target_alone() -> None:
    one = stream()
    target = Target(Turns(LIMIT), [one], per_token_s=0.02)
    for epoch in range(300):
        draft(one, epoch, right=epoch % 3 == 0, now=target.now)
        target.step()
    assert target.now - 100.0 <= 1.03 * one.head * (FLAT_S + 0.02)


def test_a_parked_stream_is_not_decided_upon() -> None:
    one = stream()
    one.park_at = 3
    assert not one.decided


def test_the_tenant_that_has_been_charged_least_per_weight_goes_first() -> None:
    turns = Turns(LIMIT)
    heavy, light, paying = stream("a", "heavy"), stream("b", "light"), stream("c", "paying", weight=4.0)
    for one in (heavy, light, paying):
        turns.enter(one)
    turns.planned(10.0, 0, turns.plan((), 10.0, others=9, room=0))
    turns.stepped([Part(heavy, 6, True, 5, 1), Part(light, 1, True, 5, 1), Part(paying, 2, True, 5, 1)], 10.9)
    assert [turns.priority(tenant) for tenant in ("heavy", "light", "paying")] == [600_000, 100_000, 50_000]


def test_who_comes_new_doesnt_go_before_those_that_were_served_little() -> None:
    turns = Turns(LIMIT)
    first = stream("a", "first")
    turns.enter(first)
    turns.planned(10.0, 0, turns.plan((), 10.0, others=1, room=0))
    turns.stepped([Part(first, 1, True, 5, 1)], 11.0)
    late = stream("b", "late")
    turns.enter(late)
    assert turns.priority("late") == turns.priority("first")


def test_overlapping_steps_are_charged_the_time_that_they_ran_alone() -> None:
    turns = Turns(LIMIT)
    one = stream()
    turns.enter(one)
    nothing = turns.plan((), 0.0, others=1, room=0)
    turns.planned(10.0, 0, nothing)
    turns.planned(10.1, 0, nothing)
    turns.stepped([Part(one, 1, True, 5, 1)], 11.0)
    turns.stepped([Part(one, 1, True, 6, 1)], 12.0)
    assert turns.priority(one.tenant) == 2_000_000
    assert turns.batches == {1: 2}
