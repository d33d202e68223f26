"""POST /v1/chat/completions, /v1/completions and /v1/responses, for any client of the OpenAI API."""

from __future__ import annotations

import asyncio
import secrets
import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.api.answer import Answer, respond
from app.api.deps import GatewayDep, TenantDep
from app.api.openapi import ANSWERS
from edge.openai.job import chat_jobs, completion_jobs
from edge.openai.render import chat_renderer
from edge.openai.render_completions import completion_renderer
from edge.openai.render_responses import responses_renderer
from edge.openai.responses import ResponsesRequest, response_jobs
from edge.openai.schemas import ChatRequest, CompletionRequest

router = APIRouter()


@router.post("/v1/chat/completions", responses=ANSWERS)
async def create_chat_completion(
    chat: ChatRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    begun = time.monotonic()
    gateway.require_model(chat.model, tenant)
    engine, seed = gateway.engine, secrets.randbits(53)
    jobs = await asyncio.to_thread(chat_jobs, chat, engine.vocabulary, context=engine.model.context, seed=seed)
    id = f"chatcmpl-{secrets.token_hex(12)}"  # noqa: A001
    renderer = chat_renderer(chat, jobs, engine.vocabulary, id=id, created=int(time.time()))
    answer = Answer(gateway, tenant, jobs, renderer, time.monotonic, id=id, begun=begun)
    return await respond(request, answer, stream=bool(chat.stream))


@router.post("/v1/completions", responses=ANSWERS)
async def create_completion(
    completion: CompletionRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    begun = time.monotonic()
    gateway.require_model(completion.model, tenant)
    engine, seed = gateway.engine, secrets.randbits(53)
    jobs = await asyncio.to_thread(
        completion_jobs, completion, engine.vocabulary, context=engine.model.context, seed=seed
    )
    id = f"cmpl-{secrets.token_hex(12)}"  # noqa: A001
    renderer = completion_renderer(completion, jobs, engine.vocabulary, id=id, created=int(time.time()))
    answer = Answer(gateway, tenant, jobs, renderer, time.monotonic, id=id, begun=begun)
    return await respond(request, answer, stream=bool(completion.stream))


@router.post("/v1/responses", responses=ANSWERS)
async def create_response(
    wanted: ResponsesRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    begun = time.monotonic()
    gateway.require_model(wanted.model, tenant)
    engine, seed = gateway.engine, secrets.randbits(53)
    jobs = await asyncio.to_thread(response_jobs, wanted, engine.vocabulary, context=engine.model.context, seed=seed)
    id = f"resp_{secrets.token_hex(12)}"  # noqa: A001
    renderer = responses_renderer(wanted, jobs, engine.vocabulary, id=id, created=int(time.time()))
    answer = Answer(gateway, tenant, jobs, renderer, time.monotonic, id=id, begun=begun)
    return await respond(request, answer, stream=bool(wanted.stream))
