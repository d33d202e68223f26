"""Fairness among tenants: whose turn it is, and whose stream may still join the queue. Pure.

Turns go by weighted virtual time. A tenant is charged the seconds that its tokens caused, rejected drafts included,
divided by its weight; who has been charged least goes first (weighted fair queueing, Demers et al. 1989; per token for
LLMs: VTC, arXiv 2401.00588). So a tenant with a thousand streams waits behind its own streams, not others behind it.
One who comes back after a pause starts where the least charged of those present stands: absence earns no claim.

The queue is shared by dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
packet switches", 1998): a tenant may have fewer streams waiting than its weight times the places that are free. So of
weight 1 one alone gets half of the queue and two a third each, a newcomer finds room whoever came before, and nobody
who waits is ever turned out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


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


def may_wait(waiting: Mapping[str, int], tenant: str, weight: float, places: int) -> bool:
    """Whether one more stream of the tenant may join a queue of so many places. `waiting`: streams by tenant."""
    return waiting.get(tenant, 0) < weight * (places - sum(waiting.values()))


def expected_wait_s(waiting: Mapping[str, int], weights: Mapping[str, float], tenant: str, turn_s: float) -> float:
    """How long one more stream of the tenant would wait behind its own. `turn_s`: until any stream gets a slot.

    `weights`: of those who wait, and the tenant's own.
    """
    present = sum(weights[other] for other in {*waiting, tenant})
    return waiting.get(tenant, 0) * turn_s * present / weights[tenant]
