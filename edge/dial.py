"""One attempt to reach a gateway: address, WebSocket, hello, welcome.

The address is looked up each time, so a gateway that moves is found again. Outside loopback there is TLS or nothing:
`hello` carries the API key. Redirects aren't followed, for the same reason; whoever sends one is no gateway, and mostly
a network that wants its users to sign in first. Proxies come from the environment (HTTPS_PROXY, NO_PROXY).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI, ProxyError
from websockets.typing import Subprotocol

from edge.address import is_loopback
from edge.errors import Unreachable, from_close, from_frame
from edge.intercepted import by_answer, by_certificate
from edge.protocol.errors import ProtocolError, Unauthorised, VersionMismatch
from edge.protocol.frames import Codec, Error, Hello, Welcome
from edge.protocol.padding import ENVELOPE_BYTES

_CLOSE_S: Final = 1.0


Dial = Callable[[str, Hello, Codec, float], Awaitable[tuple[ClientConnection, Welcome]]]
"""What `dial` does, over whatever network."""


class _Direct(connect):
    """Without redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def dial(url: str, hello: Hello, codec: Codec, timeout_s: float) -> tuple[ClientConnection, Welcome]:
    """Raises Unreachable, or what the gateway answered to `hello`. `timeout_s` covers all of it."""
    try:
        async with asyncio.timeout(timeout_s):
            socket = await _Direct(
                url,
                subprotocols=[Subprotocol(codec.subprotocol)],
                compression=None,  # it costs latency, and tells lengths
                proxy=None if is_loopback(url) else True,
                user_agent_header=hello.agent,
                max_size=codec.frame_bytes + ENVELOPE_BYTES,
                open_timeout=None,
                ping_interval=None,  # ours measure the round trip too, and only while there are streams
                close_timeout=_CLOSE_S,
            )
            try:
                return socket, await greet(socket, hello, codec)
            except BaseException:
                socket.transport.abort()
                raise
    except InvalidStatus as refusal:
        raise refused(url, refusal.response.status_code, refusal.response.headers.get("Location", "")) from refusal
    except ProxyError as error:
        raise Unreachable(f"the proxy on the way to {url} refuses: {error}") from error
    except InvalidURI as error:
        raise Unreachable(f"{url} is not a gateway's address") from error
    except (OSError, InvalidHandshake, EOFError) as error:  # OSError: TimeoutError is one
        reason = "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        raise by_certificate(url, error) or Unreachable(f"no gateway at {url}: {reason}") from error


async def greet(socket: ClientConnection, hello: Hello, codec: Codec) -> Welcome:
    """Hello and welcome on a new socket. Raises Unreachable, or what the gateway answered."""
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


def refused(url: str, status: int, location: str) -> Exception:
    """What an HTTP answer in the place of a WebSocket means."""
    if status in (401, 403):
        return Unauthorised(f"the gateway at {url} refused the key (HTTP {status})")
    # Whatever its type: a gateway answers here with 101 or an error.
    stranger = by_answer(url, status, location=location)
    return stranger or Unreachable(f"{url} answered HTTP {status}: not a gateway, or one that isn't ready")
