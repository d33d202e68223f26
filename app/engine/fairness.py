"""Weighted virtual time: whose turn it is. Pure.

A tenant is charged the seconds that its tokens caused, rejected drafts included, divided by its weight; who has been
charged least goes first (weighted fair queueing, Demers et al. 1989; per token for LLMs: VTC, arXiv 2401.00588). So a
tenant with a thousand streams waits behind its own streams, not others behind it. One who comes back after a pause
starts where the least charged of those present stands: absence earns no claim.
"""

from __future__ import annotations

from collections import Counter


class FairClock:
    def __init__(self) -> None:
        self._time: dict[str, float] = {}
        self._streams: Counter[str] = Counter()

    def enter(self, tenant: str) -> None:
        """One more stream of the tenant is here, waiting or running."""
        if not self._streams[tenant]:
            present = [self._time[other] for other in self._streams if self._streams[other]]
            self._time[tenant] = max(self._time.get(tenant, 0.0), min(present, default=0.0))
        self._streams[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A stream of the tenant is over. Its charge is kept only if it would hold the tenant back on its return."""
        self._streams[tenant] -= 1
        if self._streams[tenant]:
            return
        del self._streams[tenant]
        least = min((self._time[other] for other in self._streams), default=float("inf"))
        if self._time[tenant] <= least:
            del self._time[tenant]

    def charge(self, tenant: str, seconds: float, weight: float) -> None:
        self._time[tenant] = self._time.get(tenant, 0.0) + seconds / weight

    def at(self, tenant: str) -> float:
        """Charged so far, seconds per weight."""
        return self._time.get(tenant, 0.0)
