"""Tickets: what a page hands to a WebSocket instead of the API key. Short-lived, good for one `hello`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from app.api.deps import GatewayDep, TenantDep
from app.api.openapi import FAILURES
from app.errors import TooBusy
from app.tenants.terms import TenantId

router = APIRouter(responses=FAILURES)
TICKETS_PER_TENANT = 256


class Tickets:
    """Unused tickets, in memory: a gateway that restarts forgets them, and the page asks for another."""

    def __init__(self, *, valid_s: float, clock: Callable[[], float]) -> None:
        self.valid_s = valid_s
        self._clock = clock
        self._tickets: dict[str, tuple[float, TenantId]] = {}
        """In the order of their ends, since all live equally long."""

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, tenant: TenantId) -> str:
        """Raises TooBusy if the tenant holds too many unused ones."""
        self._expire()
        if sum(owner.id == tenant.id for _, owner in self._tickets.values()) >= TICKETS_PER_TENANT:
            raise TooBusy(f"At most {TICKETS_PER_TENANT} unused tickets are kept.", retry_after_s=self.valid_s)
        # 256 random bits, looked up in a dict: timing tells nothing that helps to guess one.
        ticket = f"tk-{secrets.token_urlsafe(32)}"
        self._tickets[ticket] = (self._clock() + self.valid_s, tenant)
        return ticket

    def redeem(self, ticket: str) -> TenantId | None:
        """The ticket's tenant, once; None if it is unknown, used or too old."""
        self._expire()
        found = self._tickets.pop(ticket, None)
        return None if found is None else found[1]

    def _expire(self) -> None:
        now = self._clock()
        for ticket, (until, _) in list(self._tickets.items()):
            if until > now:
                break
            del self._tickets[ticket]


@router.post("/v1/tickets")
async def create_ticket(gateway: GatewayDep, tenant: TenantDep) -> dict[str, Any]:
    return {"ticket": gateway.tickets.issue(tenant), "expires_in_s": gateway.tickets.valid_s}
