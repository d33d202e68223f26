"""GET /v1/models: what can be asked for, with what an edge needs to choose a drafter."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.api.deps import GatewayDep, TenantDep
from app.api.openapi import FAILURES
from app.errors import ModelNotFound
from edge.protocol.frames import ModelInfo

router = APIRouter()


@router.get("/v1/models", responses=FAILURES)
async def list_models(gateway: GatewayDep, tenant: TenantDep) -> dict[str, Any]:
    model = gateway.engine.model
    return {"object": "list", "data": [_body(model)] if tenant.terms.allows_model(model.id) else []}


@router.get("/v1/models/{model:path}", responses=FAILURES)
async def get_model(model: str, gateway: GatewayDep, tenant: TenantDep) -> dict[str, Any]:
    if model != gateway.engine.model.id or not tenant.terms.allows_model(model):
        raise ModelNotFound(f"The model '{model[:100]}' does not exist here.", param="model")
    return _body(gateway.engine.model)


def _body(model: ModelInfo) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": "paceline",
        "context_length": model.context,
        "vocabulary_size": model.vocabulary,
        "fingerprint": model.fingerprint,
    }
