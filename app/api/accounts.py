"""What running generations have used and nobody has counted yet.

An account is opened with a generation and closed when that is over; in between it is settled often, so that a long
answer costs its tenant's quota while it runs, and a gateway that is killed loses one flush interval of usage at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.engine.generation import Generation
from app.telemetry import Metrics
from app.tenants.limits import Quotas
from app.tenants.terms import TenantId
from app.tenants.usage import UsageCounter
from edge.protocol.frames import Usage


@dataclass(slots=True, eq=False)
class _Account:
    tenant: TenantId
    counted: Usage
    """What has been settled. An output that was carried here was made elsewhere: it is not this gateway's."""


class Accounts:
    def __init__(self, model: Callable[[], str], usage: UsageCounter, quotas: Quotas, metrics: Metrics) -> None:
        """`model`: its id, which is known once the engine has started."""
        self._model = model
        self._usage = usage
        self._quotas = quotas
        self._metrics = metrics
        self._open: dict[str, dict[Generation, _Account]] = {}
        """By tenant."""

    def open(self, tenant: TenantId, generation: Generation) -> None:
        """Counts the request and its prompt at once."""
        account = _Account(tenant, Usage(completion=len(generation.request.committed)))
        self._open.setdefault(tenant.id, {})[generation] = account
        self._usage.add(tenant.id, self._model(), Usage(), requests=1)
        self._settle(account, generation)

    def close(self, tenant_id: str, generation: Generation) -> None:
        """Count the rest. Idempotent."""
        own = self._open.get(tenant_id, {})
        account = own.pop(generation, None)
        if account is None:
            return
        if not own:
            del self._open[tenant_id]
        self._settle(account, generation)
        usage = account.counted
        self._metrics.rolled_back(account.tenant.name, usage.drafted - usage.accepted - usage.matched)
        reason = generation.finished.reason if generation.finished else "cancelled"
        self._metrics.finished.labels(reason).inc()

    def tenant_name(self, generation: Generation) -> str:
        """Of whose generation it is; their id once the account is closed."""
        account = self._open.get(generation.request.tenant, {}).get(generation)
        return generation.request.tenant if account is None else account.tenant.name

    def running(self, tenant_id: str) -> int:
        """Its generations that are not over."""
        return sum(generation.finished is None for generation in self._open.get(tenant_id, ()))

    def settle(self, tenant_id: str | None = None) -> None:
        """Count what was used so far, by one tenant or by all."""
        for id in [tenant_id] if tenant_id is not None else list(self._open):  # noqa: A001
            for generation, account in self._open.get(id, {}).items():
                self._settle(account, generation)

    def _settle(self, account: _Account, generation: Generation) -> None:
        before, now = account.counted, generation.usage()
        if now is before:
            return
        account.counted = now
        used = Usage(**{name: max(0, getattr(now, name) - getattr(before, name)) for name in Usage.__struct_fields__})
        self._usage.add(account.tenant.id, self._model(), used)
        self._quotas.spend_tokens(account.tenant, used.prompt + used.completion)
        self._metrics.used(account.tenant.name, used)
