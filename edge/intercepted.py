"""Somebody who answers in a gateway's place, a network that wants a sign-in mostly: how that is told."""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import urlsplit

from edge.errors import Intercepted

_SIGN_IN: Final = "Does this network want you to sign in first? Open a web page, then try again."
_GATEWAYS: Final = ("application/json", "text/event-stream")
"""What a gateway's API answers in."""


def by_answer(url: str, status: int, *, kind: str = "", location: str = "") -> Intercepted | None:
    """`kind`: the answer's content type, `location` where it redirects to. None: it may be the gateway's."""
    if 300 <= status < 400:
        host = urlsplit(location).hostname or "elsewhere"
        return Intercepted(f"{url} sends us to {host}, which no gateway does. {_SIGN_IN}")
    if status == 511 or (200 <= status < 300 and not kind.startswith(_GATEWAYS)):
        return Intercepted(f"{url} answers with a web page (HTTP {status}), not as a gateway. {_SIGN_IN}")
    return None


def by_certificate(url: str, error: BaseException) -> Intercepted | None:
    """`error`: why a connection failed, or what wraps it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"its certificate is not valid ({cause.verify_message})"
            return Intercepted(f"who answers at {url} is not the gateway: {reason}. {_SIGN_IN}")
        cause = cause.__cause__ or cause.__context__
    return None
