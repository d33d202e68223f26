"""Addresses of a gateway: how they are written, and which may be reached without TLS."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from edge.errors import Insecure


def verify_url(url: str) -> str:
    """The WebSocket address for a gateway's base address: http becomes ws, and `/v1/verify` is added."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith("/verify"):
        path = f"{path.removesuffix('/v1')}/v1/verify"
    return parts._replace(scheme=scheme, path=path).geturl()


def require_tls(url: str, *, allow_plain: bool) -> None:
    """Raises Insecure for an address outside this machine without TLS."""
    if not allow_plain and urlsplit(url).scheme in ("http", "ws") and not is_loopback(url):
        raise Insecure(
            f"{url} would carry your API key and your prompts unencrypted. Use https://, or, if the network between is "
            "your own, set PACELINE_ALLOW_PLAIN=1."
        )


def free(host: str, port: int) -> bool:
    """Whether one can listen there; True as well for an address that isn't this machine's."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return True
    except OSError as error:
        return error.errno != errno.EADDRINUSE


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own, whatever network it is on."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
