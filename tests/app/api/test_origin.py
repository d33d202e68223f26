"""A page from elsewhere can't open the WebSocket; the gateway's own, a named one and a device can."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from app.api.origin import is_allowed
from tests.app.serving import serving

JSON = [Subprotocol("paceline.v1.json")]
NAMED = "https://chat.example.org"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("https://gateway.example:8443", True),
        (NAMED, True),
        ("https://gateway.example", False),
        ("https://gateway.example:8443.evil.example", False),
        ("https://chat.example.org.evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_an_origin_is_compared_whole(origin: str | None, allowed: bool) -> None:
    assert is_allowed(origin, "gateway.example:8443", (NAMED,)) is allowed


async def test_a_foreign_page_is_refused_before_the_handshake(tmp_path: Path) -> None:
    async with serving(tmp_path, origins=NAMED) as gateway:
        url = gateway.url.replace("http", "ws") + "/v1/verify"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, subprotocols=JSON, origin=Origin("https://evil.example"))
        assert refused.value.response.status_code == 403
        for origin in (None, gateway.url, NAMED):
            async with connect(url, subprotocols=JSON, origin=None if origin is None else Origin(origin)) as socket:
                assert socket.subprotocol == "paceline.v1.json"
