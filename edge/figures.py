"""What one answer cost and how it arrived, in the figures that the docs define (docs/results.md): all measured here.

Times are seconds on the caller's clock. Tokens that were only drafted never count.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct


class Figures(Struct, frozen=True, kw_only=True):
    """Of one answer. Rates are None where nothing was counted."""

    tokens: int
    ttft_s: float | None
    """From the question to the first committed token."""
    itl_s: float | None
    """(last - first committed token's arrival) / (tokens - 1). Commits come in bursts: a median of gaps would be 0."""
    largest_gap_s: float | None
    acceptance_rate: float | None = None
    """α: draft tokens that agreed / draft tokens compared, each epoch's up to and including its first difference."""
    accepted_per_step: float | None = None
    """Verified drafts that became output, per target step."""
    steps_per_token: float | None = None
    bytes_up_per_token: float | None = None
    """Payload only: what WebSocket, TLS and TCP add is left out, on both routes."""
    bytes_down_per_token: float | None = None


@dataclass(slots=True)
class Arrivals:
    """When the committed tokens of one answer came."""

    asked: float
    tokens: int = 0
    first: float | None = None
    last: float | None = None
    largest_gap_s: float | None = None
    """Between two commits that both brought tokens."""

    def arrived(self, now: float, count: int) -> None:
        """`count` tokens came at once at `now`."""
        if count <= 0:
            return
        if self.last is None:
            self.first = now
        else:
            self.largest_gap_s = max(self.largest_gap_s or 0.0, now - self.last)
        self.last = now
        self.tokens += count

    @property
    def ttft_s(self) -> float | None:
        return None if self.first is None else self.first - self.asked

    @property
    def itl_s(self) -> float | None:
        if self.first is None or self.last is None or self.tokens < 2:
            return None
        return (self.last - self.first) / (self.tokens - 1)

    def figures(
        self,
        *,
        steps: int | None = None,
        accepted: int | None = None,
        agreed: int | None = None,
        compared: int | None = None,
        bytes_up: int | None = None,
        bytes_down: int | None = None,
    ) -> Figures:
        return Figures(
            tokens=self.tokens,
            ttft_s=self.ttft_s,
            itl_s=self.itl_s,
            largest_gap_s=self.largest_gap_s,
            acceptance_rate=_ratio(agreed, compared),
            accepted_per_step=_ratio(accepted, steps),
            steps_per_token=_ratio(steps, self.tokens),
            bytes_up_per_token=_ratio(bytes_up, self.tokens),
            bytes_down_per_token=_ratio(bytes_down, self.tokens),
        )


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
