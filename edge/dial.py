"""One attempt to reach a gateway: address, WebSocket, hello, welcome."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from edge.errors import Unreachable, from_close, from_frame
from edge.protocol.errors import ProtocolError, Unauthorised, VersionMismatch
from edge.protocol.frames import Codec, Error, Hello, Welcome

MAX_MESSAGE_BYTES: Final = 1 << 24
"""From the gateway. Its largest frame is an `opened` that carries a templated prompt."""
_CLOSE_S: Final = 1.0


async def dial(url: str, hello: Hello, codec: Codec, timeout_s: float) -> tuple[ClientConnection, Welcome]:
    """Raises Unreachable, or what the gateway answered to `hello`. `timeout_s` covers all of it."""
    try:
        async with asyncio.timeout(timeout_s):
            socket = await connect(
                url,
                subprotocols=[Subprotocol(codec.subprotocol)],
                compression=None,  # it costs latency, and tells lengths
                proxy=None if _is_loopback(url) else True,
                user_agent_header=hello.agent,
                max_size=MAX_MESSAGE_BYTES,
                open_timeout=None,
                ping_interval=None,  # ours measure the round trip too, and only while there are streams
                close_timeout=_CLOSE_S,
            )
            try:
                return socket, await _greet(socket, hello, codec)
            except BaseException:
                socket.transport.abort()
                raise
    except InvalidStatus as refusal:
        raise _refused(url, refusal.response.status_code) from refusal
    except InvalidURI as error:
        raise Unreachable(f"{url} is not a gateway's address") from error
    except (OSError, InvalidHandshake, EOFError) as error:  # OSError: TimeoutError is one
        reason = "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        raise Unreachable(f"no gateway at {url}: {reason}") from error


async def _greet(socket: ClientConnection, hello: Hello, codec: Codec) -> Welcome:
    if socket.subprotocol != codec.subprotocol:
        raise VersionMismatch(f"the gateway doesn't speak {codec.subprotocol}")
    try:
        await socket.send(codec.encode(hello))
        while True:
            frame = codec.decode(await socket.recv())
            if isinstance(frame, Welcome):
                return frame
            if isinstance(frame, Error):
                raise from_frame(frame)
    except ConnectionClosed as closed:
        raise close_error(closed) or Unreachable("the gateway closed the connection before its welcome") from closed


def close_error(closed: ConnectionClosed) -> ProtocolError | None:
    """What the gateway closed the socket for; None: an ordinary loss."""
    return None if closed.rcvd is None else from_close(closed.rcvd.code, closed.rcvd.reason)


def verify_url(url: str) -> str:
    """The WebSocket address for a gateway's base address: http becomes ws, and `/v1/verify` is added."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith("/verify"):
        path = f"{path.removesuffix('/v1')}/v1/verify"
    return parts._replace(scheme=scheme, path=path).geturl()


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refused(url: str, status: int) -> Exception:
    if status in (401, 403):
        return Unauthorised(f"the gateway at {url} refused the key (HTTP {status})")
    return Unreachable(f"{url} answered HTTP {status}: not a gateway, or one that isn't ready")
