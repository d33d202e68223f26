from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.tenants.repository import Repository, open_database
from tests.app import databases
from tests.app.serving import Running, serving


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway whose engine never waits; its outputs end at max_tokens or the context's end only."""
    async with serving(tmp_path) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def postgres() -> Iterator[databases.Server]:
    reason = databases.why_not()
    if reason is not None:
        pytest.skip(reason)
    with databases.postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database: each test that takes it runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/test.db"
    server: databases.Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
async def repository(database_url: str) -> AsyncIterator[Repository]:
    made = Repository(open_database(database_url))
    await made.upgrade()
    yield made
    await made.close()
