"""From four measured numbers to advice: which scheme wins here, and whether any beats the plain cloud. Pure.

The formulas are edge.protocol.latency's, which promise more than a simulation keeps: schemes are compared with that
error added, and a gain below `WORTH` is not called one.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from edge.protocol import latency

WORTH: Final = 0.05
OPTIMISM: Final = {"cloud only": 0.0, "eager": 0.08, "hold": 0.17, "synchronous": 0.08}
"""By how much of itself a formula may be too low. The synchronous one is exact, but every round pays the jitter."""


class Measured(Struct, frozen=True):
    draft_s: float
    """t_d: the drafter's time for a token."""
    step_s: float
    """t_v: the target's time for a token on its own, at the gateway's load of the moment."""
    rtt_s: float
    alpha: float
    """Acceptance rate per draft token."""


class Verdict(Struct, frozen=True):
    itl_s: dict[str, float]
    """By scheme: seconds per token that the formulas expect."""
    best: str
    """`cloud only` unless another is at least WORTH faster."""
    gain: float
    """Share of the plain cloud's time between tokens that the best one saves at least."""
    draft_length: int
    """γ at which the synchronous scheme is fastest."""
    balanced_draft_length: float
    """The paper's balance point, for comparison."""
    advice: str


def judge(m: Measured) -> Verdict:
    draft_length = latency.best_draft_length(m.alpha, t_d=m.draft_s, t_v=m.step_s, rtt=m.rtt_s)
    window = min(latency.LONGEST, math.ceil((m.rtt_s + 2 * m.step_s) / m.draft_s) + 1)
    itl = {
        "cloud only": latency.cloud(m.step_s),
        "eager": latency.eager(m.alpha, t_d=m.draft_s, t_v=m.step_s, rtt=m.rtt_s),
        # What has arrived is verified together, so blocks grow by themselves to the length that suits best.
        "hold": min(
            latency.hold(m.alpha, t_d=m.draft_s, t_v=m.step_s, rtt=m.rtt_s, window=window, block=block)
            for block in range(1, window + 1)
        ),
        "synchronous": latency.synchronous(m.alpha, draft_length, t_d=m.draft_s, t_v=m.step_s, rtt=m.rtt_s),
    }
    sure = {scheme: itl_s * (1 + OPTIMISM[scheme]) for scheme, itl_s in itl.items()}
    fastest = min(sure, key=lambda scheme: sure[scheme])
    gain = 1 - sure[fastest] / m.step_s
    best = fastest if gain >= WORTH else "cloud only"
    return Verdict(
        itl_s=itl,
        best=best,
        gain=gain if best == fastest else 0.0,
        draft_length=draft_length,
        balanced_draft_length=latency.balanced_draft_length(t_d=m.draft_s, t_v=m.step_s, rtt=m.rtt_s),
        advice=_advice(m, best, gain),
    )


def _advice(m: Measured, best: str, gain: float) -> str:
    draft, step, rtt = (f"{1000 * seconds:.0f} ms" for seconds in (m.draft_s, m.step_s, m.rtt_s))
    if m.draft_s >= m.step_s:
        return (
            f"Stay with the plain cloud: this device needs {draft} to draft a token, the target {step} to make one. "
            "A smaller draft model or --drafter ngram may still spare the cloud steps."
        )
    if best == "cloud only" and m.alpha < 0.5:
        return (
            f"Stay with the plain cloud: it accepts {m.alpha:.0%} of the draft tokens, too few to get ahead of it. "
            "A draft model closer to the target would help."
        )
    if best == "cloud only":
        return (
            f"Stay with the plain cloud: with a round trip of {rtt} and {m.alpha:.0%} of the draft tokens accepted, "
            f"drafts hardly ever arrive before a step of {step}."
        )
    if best == "eager":
        return f"Draft here, policy eager (the default): at least {gain:.0%} less time between tokens."
    policy = "sync" if best == "synchronous" else best
    return (
        f"Draft here, policy {policy}: at least {gain:.0%} less time between tokens, and fewer target steps. "
        "Eager is the safer choice where the network or the text varies."
    )
