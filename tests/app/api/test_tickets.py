from __future__ import annotations

import httpx2
import pytest

from app.api.tickets import TICKETS_PER_TENANT, Tickets
from app.errors import TooBusy
from app.tenants.service import TenantId
from tests.app.serving import Running

ACME, OTHER = TenantId("a", "acme"), TenantId("o", "other")


def test_a_ticket_is_good_once_and_for_a_time() -> None:
    now = [0.0]
    tickets = Tickets(valid_s=60, clock=lambda: now[0])
    first, second = tickets.issue(ACME), tickets.issue(OTHER)
    assert tickets.redeem(first) == ACME
    assert tickets.redeem(first) is None
    assert tickets.redeem("tk-x") is None
    now[0] = 60.0
    assert tickets.redeem(second) is None
    assert len(tickets) == 0


def test_a_tenant_can_not_hoard_them() -> None:
    now = [0.0]
    tickets = Tickets(valid_s=60, clock=lambda: now[0])
    for _ in range(TICKETS_PER_TENANT):
        tickets.issue(ACME)
    with pytest.raises(TooBusy):
        tickets.issue(ACME)
    tickets.issue(OTHER)
    now[0] = 60.0
    tickets.issue(ACME)
    assert len(tickets) == 1


async def test_a_ticket_needs_a_key(running: Running) -> None:
    async with httpx2.AsyncClient(base_url=running.url) as http:
        assert (await http.post("/v1/tickets")).status_code == 401
        answer = await http.post("/v1/tickets", headers=running.headers)
    assert answer.json()["expires_in_s"] == 60
