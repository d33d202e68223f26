"""A link delays by what it says: its median is the setting's, order is kept, loss and outages hold up what follows."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.link import Delay, Link, Outages
from bench.profiles import PROFILES, profile


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - jitter, not a secret


def test_a_chunk_takes_half_the_round_trip() -> None:
    assert Delay(Link(rtt_s=0.08), "up", seeded(0)).due(10.0, 100) == pytest.approx(10.04)


def test_bandwidth_queues_chunks_behind_each_other_and_differs_by_way() -> None:
    link = Link(rtt_s=0.02, up_bytes_per_s=1000, down_bytes_per_s=10_000)
    up, down = Delay(link, "up", seeded(0)), Delay(link, "down", seeded(0))
    assert up.due(0.0, 500) == pytest.approx(0.51)
    assert up.due(0.0, 500) == pytest.approx(1.01)
    assert up.due(5.0, 100) == pytest.approx(5.11)
    assert down.due(0.0, 500) == pytest.approx(0.06)


@given(st.lists(st.floats(0, 0.1), max_size=50), st.floats(0, 0.2), st.floats(0, 0.1), st.integers(0, 100))
def test_order_is_kept_and_nothing_comes_early(gaps: list[float], rtt: float, jitter: float, seed: int) -> None:
    delay = Delay(Link(rtt_s=rtt, jitter_s=jitter), "up", seeded(seed))
    now = last = 0.0
    for gap in gaps:
        now += gap
        due = delay.due(now, 10)
        assert due >= max(now, last, now + rtt / 2 - jitter)
        # Late only by the jitter, or because the chunk before it was.
        assert due <= max(last, now + rtt / 2 + jitter) + 1e-9
        last = due


@pytest.mark.parametrize("name", PROFILES)
def test_the_median_round_trip_of_a_profile_is_within_a_millisecond_of_its_setting(name: str) -> None:
    link = profile(name).link
    up, down = Delay(link, "up", seeded(1)), Delay(link, "down", seeded(2))
    # One small packet at a time, far apart: none waits for another.
    trips = [down.due(up.due(now, 20), 20) - now for now in map(float, range(0, 80_000, 10))]
    # A lost one comes later: at 1% loss each way the median moves up by 1% of the ranks.
    assert median(trips) == pytest.approx(link.median_s, abs=0.001)


def test_jitter_has_the_spread_and_the_side_that_its_shape_says() -> None:
    def delays(link: Link) -> list[float]:
        delay = Delay(link, "up", seeded(3))
        return [delay.due(now, 1) - now for now in map(float, range(4000))]

    uniform = delays(Link(0.2, 0.01, "uniform"))
    assert 0.09 <= min(uniform) < 0.0905
    assert 0.1095 < max(uniform) <= 0.11
    normal = sorted(delays(Link(0.2, 0.01, "normal")))
    assert normal[int(0.8413 * 4000)] - 0.1 == pytest.approx(0.01, rel=0.1)
    exponential = delays(Link(0.2, 0.01, "exponential"))
    assert min(exponential) >= 0.1
    assert sum(exponential) / 4000 == pytest.approx(0.11, rel=0.01)


def test_a_lost_packet_comes_two_round_trips_later_and_all_behind_it_wait() -> None:
    delay = Delay(Link(rtt_s=0.1, loss=0.2), "up", seeded(4))
    dues = [delay.due(now / 1000, 100) for now in range(1000)]
    assert dues == sorted(dues)
    first = next(n for n, due in enumerate(dues) if due > n / 1000 + 0.06)
    assert dues[first] == pytest.approx(first / 1000 + 0.05 + 0.2)
    assert dues[first + 1] >= dues[first]
    alone = Delay(Link(rtt_s=0.1, loss=0.2), "up", seeded(5))
    lost = sum(alone.due(float(now * 100), 100) > now * 100 + 0.06 for now in range(2000))
    assert lost / 2000 == pytest.approx(0.2, abs=0.03)


def test_a_large_chunk_is_more_likely_to_lose_a_packet() -> None:
    def late(size: int) -> int:
        delay = Delay(Link(rtt_s=0.1, loss=0.02), "up", seeded(6))
        return sum(delay.due(float(now * 100), size) > now * 100 + 0.06 for now in range(1000))

    assert late(20 * 1448) > 5 * late(100)


def test_an_outage_holds_what_is_sent_meanwhile_until_its_end_both_ways() -> None:
    link = Link(rtt_s=0.1, outage_every_s=10.0, outage_s=2.0)
    outages = Outages(link, seeded(7), 0.0)
    up, down = Delay(link, "up", seeded(0), outages.over), Delay(link, "down", seeded(1), outages.over)
    times = [n / 10 for n in range(2000)]
    waits = [up.due(now, 1) - now - 0.05 for now in times]
    assert waits == pytest.approx([down.due(now, 1) - now - 0.05 for now in times])
    assert max(waits) == pytest.approx(2.0, abs=0.1)
    dead = sum(wait > 0.001 for wait in waits) / len(waits)
    assert 0.05 < dead < 0.4  # 2 of 12 seconds, on average


def test_the_same_seed_gives_the_same_network() -> None:
    link = PROFILES["train"].link

    def dues(seed: int) -> list[float]:
        delay = Delay(link, "up", seeded(seed), Outages(link, seeded(seed), 0.0).over)
        return [delay.due(n / 5, 40) for n in range(500)]

    assert dues(1) == dues(1) != dues(2)


def test_a_network_without_a_name_is_a_round_trip_time() -> None:
    assert profile("80").link == profile("80ms").link == Link(0.08)
    with pytest.raises(ValueError, match="choose of lan, fibre"):
        profile("dial-up")
    with pytest.raises(ValueError, match="can't be"):
        profile("-3")
