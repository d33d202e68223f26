"""What the endpoints share: the gateway's parts, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from app.config import Settings
from app.engine.base import Engine
from app.errors import InvalidKey, ModelNotFound, ShuttingDown
from app.telemetry import Metrics
from app.tenants.repository import Repository
from app.tenants.service import TenantId, Tenants
from app.tenants.usage import UsageCounter

if TYPE_CHECKING:
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
    streams: Streams
    tickets: Tickets
    metrics: Metrics
    answers: set[Generation] = field(default_factory=set)
    """Generations that an HTTP response is being made of."""
    draining: bool = False

    def require_model(self, model: str) -> None:
        """Raises ModelNotFound or ShuttingDown."""
        if self.draining:
            raise ShuttingDown("The gateway is shutting down.", retry_after_s=5)
        if model != self.engine.model.id:
            raise ModelNotFound(f"The model '{model[:100]}' does not exist here.", param="model")

    def account(self, tenant_id: str, generation: Generation) -> None:
        """Count what a generation used, once it is over."""
        usage = generation.usage()
        carried = len(generation.request.committed)
        self.usage.add(tenant_id, self.engine.model.id, usage, carried=carried)
        tokens = self.metrics.tokens
        tokens.labels("prompt").inc(usage.prompt)
        tokens.labels("completion").inc(max(0, usage.completion - carried))
        for what in ("drafted", "verified", "accepted", "matched"):
            tokens.labels(what).inc(getattr(usage, what))
        self.metrics.steps.inc(usage.steps)
        reason = generation.finished.reason if generation.finished else "cancelled"
        self.metrics.finished.labels(reason).inc()

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
    found = await gateway.tenants.authenticate(key.strip())
    if found is None:
        raise InvalidKey("This API key is wrong or has been revoked.")
    return found


TenantDep = Annotated[TenantId, Depends(tenant)]
