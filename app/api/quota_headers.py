"""ASGI middleware: tells clients how they stand with their quotas, in OpenAI's `x-ratelimit-*` headers."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.tenants.limits import Quotas
from app.tenants.terms import caller


class QuotaHeaders:
    """On every response of which the tenant is known, refusals included; of the quotas that it has."""

    def __init__(self, app: ASGIApp, *, quotas: Quotas) -> None:
        self._app = app
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and (tenant := caller(scope)) is not None:
                headers = MutableHeaders(scope=message)
                for what, standing in self._quotas.standing(tenant).items():
                    headers[f"x-ratelimit-limit-{what}"] = str(standing.limit)
                    headers[f"x-ratelimit-remaining-{what}"] = str(standing.remaining)
                    headers[f"x-ratelimit-reset-{what}"] = duration(standing.reset_s)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)


def duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 7.66s, 1m30s."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 2), 60)
    return f"{minutes:.0f}m{rest:.0f}s" if minutes else f"{rest:g}s"
