"""What each scheme costs: seconds per output token, from four measured numbers.

    t_d  time to draft a token             alpha  acceptance rate per draft token, 0 to 1 (tokens taken as independent)
    t_v  a target step                     gamma  draft length, tokens a round
    rtt  round-trip time of the network

All times are seconds. The streamed cloud costs t_v; every other scheme is compared with that. Sources: Leviathan et
al., arXiv 2211.17192; Lin 2026, "Multi-Tenant Edge-Cloud Hybrid LLM Serving" (T_sync, T_async, the balance point); the
never-wait form was derived for this project. Queueing, jitter and the batch are left out: a step costs t_v, however
many drafts it checks.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 64
"""Draft lengths above this are not considered: a draft frame holds no more."""


def expected_accepted(alpha: float, gamma: int) -> float:
    """E[A]: accepted tokens of a draft of `gamma`: α(1 − α^γ)/(1 − α), one less than `expected_tokens`."""
    _check(alpha, gamma)
    return float(gamma) if alpha == 1 else alpha * (1 - alpha**gamma) / (1 - alpha)


def expected_tokens(alpha: float, gamma: int) -> float:
    """E: output tokens of a round, the target's own included, (1 − α^(γ+1))/(1 − α). Leviathan et al., eq. 1."""
    return 1 + expected_accepted(alpha, gamma)


def cloud(t_v: float) -> float:
    """Seconds per token of a streamed cloud: one step a token; the round trip is paid once, before the first."""
    return t_v


def synchronous(alpha: float, gamma: int, *, t_d: float, t_v: float, rtt: float) -> float:
    """Seconds per token when each side waits for the other: (γ·t_d + R + t_v) / E. The paper's T_sync."""
    return (gamma * t_d + rtt + t_v) / expected_tokens(alpha, gamma)


def best_draft_length(alpha: float, *, t_d: float, t_v: float, rtt: float, longest: int = LONGEST) -> int:
    """The draft length, 0 to `longest`, at which `synchronous` is fastest; the shortest of several."""
    return min(range(longest + 1), key=lambda gamma: synchronous(alpha, gamma, t_d=t_d, t_v=t_v, rtt=rtt))


def hold(alpha: float, *, t_d: float, t_v: float, rtt: float, window: int, block: int = 1) -> float:
    """Seconds per token when the edge drafts ahead and the cloud waits for drafts: (1 − α)(R + t_v) + α·s. A floor.

    s, the time between accepted tokens, is the slowest stage: drafting (t_d), verifying blocks of c (t_v/c), or the
    window of W tokens in flight coming round ((R + t_v + c·t_d)/W). A rejection costs a round trip and a step. At α → 1
    this is the paper's T_async, the maximum of the stages. An event simulation gives up to 17% more.
    """
    _check(alpha, 0)
    if window < 1 or block < 1:
        raise ValueError(f"window {window} and block {block} must be at least 1")
    stage = max(t_d, t_v / block, (rtt + t_v + block * t_d) / window)
    return (1 - alpha) * (rtt + t_v) + alpha * stage


def eager(alpha: float, *, t_d: float, t_v: float, rtt: float) -> float:
    """Seconds per token when nobody waits: t_v − (t_v − t_d)·αⁿ, n = (R + t_v)/(t_v − t_d); t_v if t_d ≥ t_v.

    After a rejection the cloud steps alone, a token each t_v, while the edge redrafts from what it heard half a round
    trip ago, a token each t_d. It overtakes the cloud after n tokens, if all of them match; then the stream runs at t_d
    until the next mismatch. An event simulation gives up to 8% more at R = 0, within 5% from R = 20 ms, equal from 80.
    """
    _check(alpha, 0)
    if t_d >= t_v:
        return t_v
    lead = catch_up_tokens(t_d=t_d, t_v=t_v, rtt=rtt)
    return t_v - (t_v - t_d) * float(alpha**lead)


def catch_up_tokens(*, t_d: float, t_v: float, rtt: float) -> float:
    """n = (R + t_v)/(t_v − t_d): tokens in a row that must match before drafts reach the cloud in time again.

    Raises ValueError if t_d ≥ t_v: then they never do.
    """
    if t_d >= t_v:
        raise ValueError(f"a draft token takes {t_d} s, a step {t_v} s: drafts never catch up")
    return (rtt + t_v) / (t_v - t_d)


def balanced_draft_length(*, t_d: float, t_v: float, rtt: float) -> float:
    """The paper's balance point: the γ at which T_verify = γ·T_draft + T_network, so that no stage waits; at least 0.

    A plan's first guess, to be printed beside the measured optimum: it doesn't look at α.
    """
    return max(0.0, (t_v - rtt) / t_d)


def _check(alpha: float, gamma: int) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"acceptance rate {alpha} is not between 0 and 1")
    if gamma < 0:
        raise ValueError(f"draft length {gamma} is negative")
