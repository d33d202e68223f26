"""What the endpoints share: the gateway's parts, and who is asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import structlog
from fastapi import Depends
from starlette.requests import HTTPConnection

from app.config import Settings
from app.engine.base import Engine, Request
from app.errors import InvalidKey, ModelNotFound, NoDatabase, ShuttingDown
from app.telemetry import Metrics
from app.tenants.limits import Quotas
from app.tenants.repository import Repository
from app.tenants.service import DatabaseAway, Tenants
from app.tenants.terms import CALLER, TenantId
from app.tenants.usage import UsageCounter

if TYPE_CHECKING:
    from app.api.accounts import Accounts
    from app.api.streams import Streams
    from app.api.tickets import Tickets
    from app.engine.generation import Generation


@dataclass(slots=True, eq=False)
class Gateway:
    """The running gateway. Made once by `create_app`; endpoints get it as a dependency."""

    settings: Settings
    engine: Engine
    repository: Repository
    tenants: Tenants
    usage: UsageCounter
    quotas: Quotas
    accounts: Accounts
    streams: Streams
    tickets: Tickets
    metrics: Metrics
    answers: set[Generation] = field(default_factory=set)
    """Generations that an HTTP response is being made of."""
    draining: bool = False

    def require_model(self, model: str, tenant: TenantId) -> None:
        """Raises ModelNotFound or ShuttingDown; RateLimited over the tenant's quota of requests, which this charges."""
        if self.draining:
            raise ShuttingDown("The gateway is shutting down.", retry_after_s=5)
        if model != self.engine.model.id or not tenant.terms.allows_model(model):
            raise ModelNotFound(f"The model '{model[:100]}' does not exist here.", param="model")
        self.quotas.request(tenant)

    def submit(self, tenant: TenantId, requests: Sequence[Request]) -> list[Generation]:
        """Begin all of these or none; each is to be given to `account` when it is over.

        Raises RateLimited, Overloaded, InvalidRequest or EngineFailed.
        """
        if tenant.terms.tokens_per_minute is not None:
            self.accounts.settle(tenant.id)
        running = self.accounts.running(tenant.id)
        self.quotas.admit(tenant, tokens=sum(len(r.prompt) for r in requests), streams=len(requests), running=running)
        generations: list[Generation] = []
        try:
            generations.extend(map(self.engine.submit, requests))
        except BaseException:  # a request that was refused costs nothing, even if some of its choices had been taken
            for generation in generations:
                generation.cancel()
            raise
        for generation in generations:
            generation.on_checked = self.metrics.checked
            self.accounts.open(tenant, generation)
        return generations

    def account(self, tenant_id: str, generation: Generation) -> None:
        """Count what a generation used, once it is over. Idempotent."""
        self.accounts.close(tenant_id, generation)

    def drain(self) -> None:
        """Take nothing new and end the HTTP answers. Edges' streams are left: edges carry them to another gateway."""
        self.draining = True
        for generation in self.answers:
            generation.cancel()


def gateway(connection: HTTPConnection) -> Gateway:
    found: Gateway = connection.app.state.gateway
    return found


GatewayDep = Annotated[Gateway, Depends(gateway)]


async def tenant(connection: HTTPConnection, gateway: GatewayDep) -> TenantId:
    """The tenant of the request's API key. Raises InvalidKey."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise InvalidKey("Send your API key as `Authorization: Bearer sk-pl-…`.")
    try:
        found = await gateway.tenants.authenticate(key.strip())
    except DatabaseAway:
        raise NoDatabase("The key can't be checked now. Try again.", retry_after_s=5) from None
    if found is None:
        raise InvalidKey("This API key is wrong or has been revoked.")
    structlog.contextvars.bind_contextvars(tenant=found.id)
    connection.scope[CALLER] = found
    return found


TenantDep = Annotated[TenantId, Depends(tenant)]
