"""The in-process device: drafts of the quality it was asked for, and the whole output whatever happens."""

from __future__ import annotations

import pytest

from app.engine.base import Request
from app.engine.scripted import ScriptedEngine
from bench.hybrid import KINDS, MOSTLY, Device, Drafts, Kind, first_difference
from edge.protocol.frames import Policy, Sampling

PROMPT = tuple(b"what is a paceline?")
LENGTH = 80


def request(policy: Policy, committed: tuple[int, ...] = ()) -> Request:
    return Request(
        id="1",
        tenant="t",
        prompt=PROMPT,
        sampling=Sampling(temperature=0, seed=0),
        max_tokens=LENGTH,
        policy=policy,
        hold_s=0.01,
        committed=committed,
    )


@pytest.mark.parametrize("policy", ["eager", "hold"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_output_is_the_targets_own(kind: Kind, policy: Policy) -> None:
    engine = ScriptedEngine(streams=2)
    await engine.start()
    try:
        reference = tuple(engine.script.greedy(PROMPT, LENGTH))
        drafts = Drafts(kind, reference, engine.vocabulary.size)
        device = Device(drafts, window=5, block=2, leave_at=20 if kind == "leaves" else None)
        assert await device.run(engine, request(policy)) == list(reference)
        if kind in ("wrong", "none"):
            assert device.usage.accepted == 0
        elif policy == "hold":  # eager may be faster than any draft
            assert device.usage.accepted > 0
        assert await device.run(engine, request(policy, reference[:30])) == list(reference)
    finally:
        await engine.stop()


async def test_right_drafts_that_the_cloud_waits_for_save_most_steps() -> None:
    engine = ScriptedEngine(streams=1)
    await engine.start()
    try:
        reference = tuple(engine.script.greedy(PROMPT, LENGTH))
        device = Device(Drafts("right", reference, engine.vocabulary.size), window=8, block=8)
        await device.run(engine, request("hold"))
        assert device.usage.steps <= LENGTH // 4
        assert device.usage.accepted == device.usage.verified
    finally:
        await engine.stop()


def test_drafts_are_as_right_as_their_kind_says() -> None:
    reference = tuple(range(100, 2100))

    def share(kind: Kind) -> float:
        drafts = Drafts(kind, reference, 5000, seed=7)
        return sum(drafts.token(i) == token for i, token in enumerate(reference)) / len(reference)

    assert share("right") == share("leaves") == 1
    assert share("wrong") == share("none") == 0
    assert share("mostly") == pytest.approx(MOSTLY, abs=0.03)
    assert Drafts("none", reference, 5000).token(0) is None
    assert Drafts("right", reference, 5000).token(len(reference)) is None
    assert Drafts("wrong", (4999,), 5000).token(0) == 0


def test_first_difference_counts_a_missing_end() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 3, 4], [1, 2, 4]) == 1
    assert first_difference([1], [1, 2]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2
