"""The gateway's HTTP API, passed through with the device's key: cloud-only answers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import httpx2

from edge.address import is_loopback, require_tls
from edge.errors import Unreachable
from edge.intercepted import by_answer, by_certificate

_PASSED: Final = ("content-type", "retry-after", "x-request-id", "cache-control")
_PASSED_PREFIX: Final = "x-ratelimit-"
_GONE: Final = frozenset((502, 503, 504))
"""Statuses of something in the gateway's place, or of a gateway that can't answer."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A response of the gateway. `close` it, read or not."""

    status: int
    headers: dict[str, str]
    body: AsyncGenerator[bytes, None]
    close: Callable[[], Awaitable[None]]

    @property
    def gone(self) -> bool:
        return self.status in _GONE


class Proxy:
    """Use as an async context manager."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 10.0, allow_plain: bool = False) -> None:
        """`timeout_s`: to connect; an answer may take as long as it takes. Raises Insecure."""
        require_tls(url, allow_plain=allow_plain)
        self.url = url
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(timeout_s, read=None),
            trust_env=not is_loopback(url),
        )

    async def __aenter__(self) -> Proxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self, method: str, path: str, body: bytes = b"") -> Passed:
        """Raises Unreachable; Intercepted, if somebody else answers."""
        life = AsyncExitStack()
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            response = await life.enter_async_context(
                self._http.stream(method, path, content=body or None, headers=headers)
            )
        except (httpx2.HTTPError, ssl.SSLError) as error:
            text = f"no gateway answers at {self.url} ({str(error) or type(error).__name__})"
            raise by_certificate(self.url, error) or Unreachable(text) from error
        kind, location = response.headers.get("Content-Type", ""), response.headers.get("Location", "")
        if (stranger := by_answer(self.url, response.status_code, kind=kind, location=location)) is not None:
            await life.aclose()
            raise stranger
        passed = {
            name: value
            for name, value in response.headers.items()
            if name.lower() in _PASSED or name.lower().startswith(_PASSED_PREFIX)
        }
        return Passed(response.status_code, passed, _body(response.aiter_bytes()), life.aclose)


async def _body(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in chunks:
            yield chunk
    except (httpx2.HTTPError, ssl.SSLError) as error:
        raise Unreachable(f"the gateway's answer broke off ({type(error).__name__})") from error
