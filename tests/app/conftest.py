from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.serving import Running, serving


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway whose engine never waits; its outputs end at max_tokens or the context's end only."""
    async with serving(tmp_path) as gateway:
        yield gateway
