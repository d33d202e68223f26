"""Which pages may open a WebSocket here. For sockets browsers only send the page's origin (RFC 6455 §10.2).

A page from elsewhere has no ticket, so it could do nothing yet; but what it can't open it can't try anything on.
Devices send no origin.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit


def is_allowed(origin: str | None, host: str, others: Collection[str]) -> bool:
    """`host`: the request's Host header, which names this gateway as the browser knows it; `others`: whole origins."""
    if origin is None:
        return True
    return origin in others or (urlsplit(origin).netloc == host and host != "")
