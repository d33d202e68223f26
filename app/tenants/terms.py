"""On what terms a tenant is served: its share, its quotas, and what it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""What a tenant's name looks like: it is part of addresses, labels and tables."""
CALLER = "paceline.tenant"
"""Where an ASGI scope says whose request it is, once that is known: for the middleware around the endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """None means without a bound: as much, or whatever, the gateway has."""

    weight: float = 1.0
    """Its share of the target when that is busy: a tenant of weight 3 gets three times what one of weight 1 gets."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Of prompts and outputs together."""
    concurrent_streams: int | None = None
    draft_tokens_per_minute: int | None = None
    """Drafts past that are dropped; the streams that they are for go on without."""
    models: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    """What a device may ask for: eager, hold, auto, sync."""

    def allows_model(self, model: str) -> bool:
        return self.models is None or model in self.models


@dataclass(frozen=True, slots=True)
class TenantId:
    """Who a request is for, and on what terms."""

    id: str
    name: str
    terms: Terms = Terms()


def caller(scope: Mapping[str, Any]) -> TenantId | None:
    """Whose request an ASGI scope is of; None: nobody's, or nobody knows yet."""
    found: TenantId | None = scope.get(CALLER)
    return found
