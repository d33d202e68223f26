"""POST /v1/chat/completions, /v1/completions and /v1/responses, for any client of the OpenAI API."""

from __future__ import annotations

import asyncio
import secrets
import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.api.answer import Answer, respond
from app.api.deps import Gateway, GatewayDep, TenantDep
from app.api.openapi import ANSWERS
from app.tenants.terms import TenantId
from edge.openai.endpoints import CHAT, COMPLETIONS, RESPONSES, Endpoint, R
from edge.openai.responses import ResponsesRequest
from edge.openai.schemas import ChatRequest, CompletionRequest

router = APIRouter()


@router.post("/v1/chat/completions", responses=ANSWERS)
async def create_chat_completion(
    chat: ChatRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    return await _answer(CHAT, chat, request, gateway, tenant)


@router.post("/v1/completions", responses=ANSWERS)
async def create_completion(
    completion: CompletionRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    return await _answer(COMPLETIONS, completion, request, gateway, tenant)


@router.post("/v1/responses", responses=ANSWERS)
async def create_response(
    wanted: ResponsesRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    return await _answer(RESPONSES, wanted, request, gateway, tenant)


async def _answer(endpoint: Endpoint[R], wanted: R, request: Request, gateway: Gateway, tenant: TenantId) -> Response:
    begun = time.monotonic()
    gateway.require_model(wanted.model, tenant)
    engine, seed = gateway.engine, secrets.randbits(53)
    jobs = await asyncio.to_thread(endpoint.jobs, wanted, engine.vocabulary, context=engine.model.context, seed=seed)
    id = endpoint.prefix + secrets.token_hex(12)  # noqa: A001
    renderer = endpoint.renderer(wanted, jobs, engine.vocabulary, id=id, created=int(time.time()))
    answer = Answer(gateway, tenant, jobs, renderer, time.monotonic, id=id, begun=begun)
    return await respond(request, answer, stream=bool(wanted.stream))
