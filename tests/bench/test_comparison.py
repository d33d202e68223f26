"""`bench compare`: what is counted of an answer, the intervals, and the real pair for a few tokens."""

from __future__ import annotations

import numpy as np
import pytest

from bench.bootstrap import ratio_interval
from bench.compare import Settings, run
from bench.comparison import BUSY, Case, Measured, Sample, cases, compared, row
from bench.pair import Answer
from edge.events import Committed, Drafted, Ended, Event, Measures, RolledBack, Token
from edge.figures import Figures
from edge.protocol import latency
from edge.protocol.frames import Usage


def commit(start: int, count: int, agreed: int) -> Committed:
    return Committed(0.0, start, tuple(Token(start + n, "cloud", "") for n in range(count)), agreed, "")


def sample(itl_s: float, tokens: int = 11, *, events: tuple[Event, ...] = (), draft_s: float | None = None) -> Sample:
    figures = Figures(tokens=tokens, ttft_s=0.1, itl_s=itl_s, largest_gap_s=itl_s)
    measures = Measures(
        gaps_s=(itl_s,) * (tokens - 1),
        draft_s=draft_s,
        step_s=0.03,
        rtt_s=None,
        drafted=tokens,
        wasted=2,
        drafted_per_token=None,
        wasted_per_token=None,
        bytes_up=100 + 4 * tokens,
        bytes_down=20 * tokens,
        bytes_opening=100,
        attachments=1,
        drafter_failed=False,
    )
    usage = Usage(steps=tokens, accepted=0)
    ended = Ended(1.0, "length", "", None, usage, figures, measures)
    return Sample(Answer(tuple(range(tokens)), ended, events), 0.11, 0.22)


def test_depth_counts_from_the_last_point_at_which_drafting_began_anew() -> None:
    events = (
        commit(0, 1, 0),  # the cloud's first token: nothing was drafted for it
        Drafted(0.0, 1, (1, 2, 9), (1.0, 1.0, 1.0)),
        commit(1, 3, 2),  # two agree, the third doesn't
        RolledBack(0.0, 3, (9,)),
        Drafted(0.0, 4, (4,), (1.0,)),
        commit(4, 1, 1),
        commit(5, 1, 0),  # outrun: nothing was compared
        Drafted(0.0, 6, (7,), (1.0,)),
        RolledBack(0.0, 6, (7,)),  # the stream ended
    )
    assert compared(events) == [(1, True), (2, True), (3, False), (1, True)]


def test_an_interval_holds_the_ratio_narrows_with_more_answers_and_is_a_point_for_one() -> None:
    rng = np.random.default_rng(1)
    few, many = rng.normal(30, 3, 8), rng.normal(30, 3, 200)
    (low, high), (near, far) = (ratio_interval(x, np.ones(len(x))) for x in (few, many))
    assert low < few.mean() < high
    assert far - near < (high - low) / 2
    assert ratio_interval([30.0], [10.0]) == (3.0, 3.0)


def test_a_row_weighs_answers_by_tokens_and_stands_beside_the_formula_at_its_own_figures() -> None:
    case = Case("eager", "eager", 0.0, "top-1")
    agreed = (commit(0, 4, 4), commit(4, 1, 0), RolledBack(0.0, 4, (9,)))
    samples = [sample(0.02, 11, events=agreed, draft_s=0.01), sample(0.03, 31, draft_s=0.01)]
    cloud = [sample(0.04, 11), sample(0.04, 31)]
    found = row("fibre", case, samples, cloud, 0.08)
    assert found["itl_ms"] == pytest.approx((10 * 20 + 30 * 30) / 40)
    assert found["over_cloud"] == pytest.approx(50 / 80)
    assert found["itl_low_ms"] == pytest.approx(20)
    assert found["itl_high_ms"] == pytest.approx(30)
    assert found["alpha"] == pytest.approx(0.8)
    assert found["alpha_by_position"][:5] == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert found["formula_ms"] == pytest.approx(1e3 * latency.eager(0.8, t_d=0.01, t_v=0.03, rtt=0.08))
    assert found["up_bytes_per_token"] == pytest.approx(4)
    assert found["cloud_cpu_ms_per_token"] == pytest.approx(1e3 * 0.44 / 42)
    assert found["other_text"] == 0


def test_the_formula_of_hold_is_a_floor_that_counts_on_the_drafts_of_a_step_together() -> None:
    hold = Case("hold", "hold", 0.0, "top-1")
    figures = Measured(alpha=1.0, draft_s=0.01, step_s=0.03, rtt_s=0.0)
    assert figures.formula_s(hold, None) == pytest.approx(0.01)
    assert figures.formula_s(Case("sync", "sync", 0.0, "top-1"), 4.0) == pytest.approx((4 * 0.01 + 0.03) / 5)
    assert figures.formula_s(Case("cloud n-gram", "eager", 0.0, "n-gram"), None) is None
    assert figures.best_length() == 8
    assert Measured(None, None, 0.03, 0.0).best_length() == 1


def test_coupled_drafts_are_a_case_only_where_there_is_noise_to_share() -> None:
    found = cases([0.0, 0.8])
    assert len(found) == len(set(found)) == 7 + 11
    assert {case.temperature for case in found if case.drafting == "coupled"} == {0.8}


@pytest.mark.model
async def test_the_real_pair_fills_every_row_by_every_scheme() -> None:
    settings = Settings(["lan"], (0.0,), prompts=1, tokens=16)
    advanced: list[None] = []
    rows = await run(settings, lambda: advanced.append(None))
    assert [found["scheme"] for found in rows] == ["cloud", BUSY, "cloud n-gram", "eager", "sync", "hold", "auto"]
    assert len(advanced) == settings.answers == 7
    for found in rows:
        assert found["tokens"] == 16
        assert found["itl_ms"] > 0
        assert found["cloud_cpu_ms_per_token"] > 0
        assert found["other_text"] == 0
    drafted = {found["scheme"]: found for found in rows}
    assert drafted["cloud"]["steps_per_token"] == drafted[BUSY]["steps_per_token"] == 1
    assert drafted[BUSY]["over_busy_cloud"] == 1
    assert drafted[BUSY]["edge_cpu_ms_per_token"] > 2 * drafted["cloud"]["edge_cpu_ms_per_token"]
    assert drafted["hold"]["steps_per_token"] < 1
    assert 1 <= drafted["sync"]["gamma"] <= 8
