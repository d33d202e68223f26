"""`bench demo`: what it adds up, and the real pair for a few tokens."""

from __future__ import annotations

import pytest

from bench.demo import Network, run
from bench.pair import Answer
from edge.events import Ended, Measures
from edge.figures import Figures
from edge.protocol.frames import Usage


def answer(tokens: tuple[int, ...], itl_s: float, *, steps: int, alpha: float | None = None) -> Answer:
    figures = Figures(
        tokens=len(tokens), ttft_s=0.1, itl_s=itl_s, largest_gap_s=itl_s, acceptance_rate=alpha, steps_per_token=1.0
    )
    measures = Measures(
        gaps_s=(),
        draft_s=0.02 if alpha else None,
        step_s=0.04,
        rtt_s=None,
        drafted=0,
        wasted=0,
        drafted_per_token=None,
        wasted_per_token=None,
        bytes_up=0,
        bytes_down=0,
        bytes_opening=0,
        attachments=1,
        drafter_failed=False,
    )
    return Answer(tokens, Ended(1.0, "length", "", None, Usage(steps=steps), figures, measures))


def test_long_answers_weigh_more_and_a_changed_text_is_told() -> None:
    network = Network(80.0)
    same, other = (1, 2, 3), tuple(range(11))
    network.add(
        0,
        {
            "cloud": answer(same, 0.040, steps=3),
            "busy": answer(same, 0.040, steps=3),
            "eager": answer(same, 0.030, steps=2, alpha=0.9),
            "hold": answer(same, 0.025, steps=1),
            "auto": answer(same, 0.030, steps=2),
        },
    )
    assert network.row()["identical"]
    network.add(
        1,
        {
            "cloud": answer(other, 0.040, steps=11),
            "busy": answer(other, 0.050, steps=11),
            "eager": answer(other, 0.018, steps=5, alpha=0.7),
            "hold": answer((*other[:7], 99), 0.025, steps=4),
            "auto": answer(other, 0.018, steps=5),
        },
    )
    row = network.row()
    assert row["rtt_ms"] == 80
    assert row["cloud_itl_ms"] == pytest.approx(40)
    assert row["eager_itl_ms"] == pytest.approx((2 * 30 + 10 * 18) / 12)
    assert row["eager_over_cloud"] == pytest.approx(20 / 40)
    assert row["eager_over_busy_cloud"] == pytest.approx(20 / (580 / 12))
    assert row["alpha"] == pytest.approx(0.8)
    assert not row["identical"]
    (parting,) = network.parted
    assert (parting.prompt, parting.case, parting.at) == (1, "hold, RTT 80 ms", 7)
    parting.tie = True
    assert network.row()["identical"]
    assert network.row()["ties"] == 1


@pytest.mark.model
async def test_the_real_pair_gives_the_same_text_by_every_scheme() -> None:
    (network,) = await run([0.0], prompts=1, tokens=10)
    row = network.row()
    assert row["identical"], network.parted
    assert row["tokens"] == 9
    assert row["hold_steps_per_token"] < 1
