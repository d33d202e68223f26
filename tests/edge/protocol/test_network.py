"""Both state machines in one process, through any network: the target's own text comes out, and nothing hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.protocol.frames import JSON, MSGPACK, Policy
from tests.edge.protocol.cloud import Cloud, Machine, reference, target
from tests.edge.protocol.device import Device, Job, Propose
from tests.edge.protocol.network import Clock, Loss, Network, Weather


@dataclass(slots=True)
class Plan:
    """One job before it is built: Hypothesis prints this."""

    drafter: str
    policy: Policy
    end: int
    max_tokens: int
    draft_s: float
    block: int
    cancel_at: int | None

    def job(self, key: int, held_tokens: int) -> Job:
        prompt = (key, self.end)
        return Job(
            prompt,
            self.max_tokens,
            drafter(self.drafter, prompt),
            self.policy,
            self.draft_s,
            self.block,
            held_tokens,
            self.cancel_at,
        )


def drafter(kind: str, prompt: tuple[int, ...]) -> Propose:
    """Drafters of every quality. All but `none` and `wrong` are sometimes right."""

    def right(position: int, asked: int) -> int | None:
        return target(prompt, position)

    def partly(position: int, asked: int) -> int | None:
        return target(prompt, position) + (1 if hash((position, asked)) % 5 < 2 else 0)

    def wrong(position: int, asked: int) -> int | None:
        return target(prompt, position) + 1

    def fitful(position: int, asked: int) -> int | None:
        return None if hash((asked, position)) % 3 == 0 else target(prompt, position)

    def none(position: int, asked: int) -> int | None:
        return None

    kinds: dict[str, Callable[[int, int], int | None]] = {
        "right": right,
        "partly": partly,
        "wrong": wrong,
        "fitful": fitful,
        "none": none,
    }
    return kinds[kind]


plans = st.builds(
    Plan,
    drafter=st.sampled_from(["right", "partly", "wrong", "fitful", "none"]),
    policy=st.sampled_from(["eager", "hold", "sync"]),
    end=st.integers(0, 60),
    max_tokens=st.integers(1, 50),
    draft_s=st.sampled_from([0.0, 0.005, 0.02, 0.1]),
    block=st.sampled_from([1, 1, 3, 5]),
    cancel_at=st.one_of(st.none(), st.none(), st.integers(0, 30)),
)
weathers = st.builds(
    Weather,
    seed=st.integers(0, 2**32),
    delay_s=st.sampled_from([(0.0, 0.0), (0.01, 0.01), (0.0, 0.2), (0.1, 0.11)]),
    losses=st.dictionaries(st.integers(0, 160), st.sampled_from(Loss), max_size=4),
    notice_s=st.sampled_from([0.0, 0.3, 3.0]),
    subprotocol=st.sampled_from([MSGPACK, JSON]),
)
machines = st.builds(
    Machine,
    step_s=st.sampled_from([0.01, 0.03]),
    hold_s=st.sampled_from([0.0, 0.1, 0.5]),
    grace_s=st.sampled_from([0.05, 1.0, 10.0]),
    candidates=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    windows=st.lists(st.integers(1, 24), min_size=1, max_size=3),
    held_tokens=st.sampled_from([2, 256, 256]),
    flush_s=st.sampled_from([0.0, 0.0, 0.05, 0.2]),
)
dying = st.one_of(st.none(), st.none(), st.floats(0, 2))


@settings(
    max_examples=2000,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(plans, min_size=1, max_size=3), weathers, machines, dying)
def test_any_network_gives_the_reference(
    wanted: list[Plan], weather: Weather, machine: Machine, dies_at: float | None
) -> None:
    clock = Clock()
    cloud = Cloud(clock, machine)
    network = Network(clock, weather, cloud)
    jobs = [plan.job(key, machine.held_tokens) for key, plan in enumerate(wanted)]
    device = Device(network, jobs, dies_at=dies_at)
    if dies_at is not None:  # a peer that drops off the net; sooner or later the cloud's keep-alive notices
        clock.after(dies_at + 1.0, lambda: hang_up(device))

    clock.run(most=20_000, observe=lambda: check_accounts(cloud, jobs))

    for job, plan in zip(jobs, wanted, strict=True):
        check_text(job, plan, dead=dies_at is not None)
    assert not cloud.streams, "the cloud still holds a stream"
    assert not any(cloud.sockets.values())
    assert cloud.longest_hold_s <= machine.hold_s + 1e-9
    check_costs(device, network, jobs, machine)


def hang_up(device: Device) -> None:
    if device.socket is not None:
        device.socket.lose(Loss.CUT)


def check_text(job: Job, plan: Plan, *, dead: bool) -> None:
    whole = reference(job.prompt, job.max_tokens)
    held = job.session.ledger.tokens
    assert held == whole[: len(held)]
    if dead:
        return
    assert job.done, "a stream hangs"
    assert job.session.finish is not None
    if job.session.finish.reason == "cancelled":
        assert plan.cancel_at is not None
        assert len(held) >= plan.cancel_at
    else:
        assert held == whole


def check_accounts(cloud: Cloud, jobs: list[Job]) -> None:
    """The laws of DraftingStats and VerifyingStats, after every event."""
    for stream in cloud.streams.values():
        stats, pending = stream.verifier.stats, len(stream.verifier.pending)
        assert stats.drafted == stats.accepted + stats.matched + stats.dropped + pending
        assert stats.accepted <= stats.verified
        assert stats.agreed <= stats.compared <= stats.agreed + stream.verifier.epoch + 1
        assert min(stats.accepted, stats.matched, stats.dropped, stats.compared) >= 0
    for job in jobs:
        mine, session = job.session.stats, job.session
        assert mine.drafted == mine.agreed + mine.rolled_back + len(session.tail)
        assert session.head <= session._sent <= session.end or session.finish is not None


def check_costs(device: Device, network: Network, jobs: list[Job], machine: Machine) -> None:
    """A lost socket costs one new socket and no more; an unbroken one is enough for everything."""
    assert device.connects <= network.losses + 1
    for job in jobs:
        assert job.attempts <= 2 * device.connects  # each socket: a resume, and an open if that was too late
        finish = job.session.finish
        if network.losses == 0 and finish is not None:
            assert job.opens == 1
            assert finish.usage.drafted <= job.session.stats.sent
            assert finish.usage.accepted == job.session.stats.accepted
            assert finish.usage.accepted + finish.usage.matched <= job.session.stats.agreed
            assert finish.usage.steps <= len(job.session.ledger) + 1
