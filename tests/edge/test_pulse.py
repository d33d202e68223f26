from __future__ import annotations

from edge.pulse import Pulse


def ping(pulse: Pulse, now: float) -> int:
    pulse.ask()
    taken = pulse.take(now)
    assert taken is not None
    return taken.nonce


def test_the_round_trip_is_the_least_of_the_last_eight() -> None:
    pulse = Pulse()
    assert pulse.rtt_s is None
    for trip_s in (0.05, 0.25, 0.3):
        nonce = ping(pulse, 10.0)
        pulse.heard = 10.0 + trip_s
        pulse.answered(nonce)
    assert pulse.rtt_s is not None
    assert round(pulse.rtt_s, 9) == 0.05
    for _ in range(8):
        nonce = ping(pulse, 20.0)
        pulse.heard = 20.5
        pulse.answered(nonce)
    assert pulse.rtt_s == 0.5, "what was measured long ago counts no more"


def test_a_late_answer_to_an_earlier_ping_says_nothing() -> None:
    pulse = Pulse()
    early = ping(pulse, 1.0)
    ping(pulse, 6.0)
    pulse.heard = 6.1
    pulse.answered(early)
    assert pulse.rtt_s is None


def test_a_ping_leaves_once() -> None:
    pulse = Pulse()
    assert pulse.take(0.0) is None
    ping(pulse, 0.0)
    assert pulse.take(0.0) is None
