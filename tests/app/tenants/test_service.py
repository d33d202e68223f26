from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.tenants.repository import Repository, open_database
from app.tenants.service import Tenants


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[Repository]:
    made = Repository(open_database(f"sqlite+aiosqlite:///{tmp_path}/test.db"))
    await made.upgrade()
    yield made
    await made.close()


def service(repository: Repository, *, pepper: str = "s", clock: Clock | None = None) -> Tenants:
    return Tenants(repository, secret=pepper, cache_s=30, clock=clock or Clock())


async def test_a_key_names_its_tenant_and_others_name_nobody(repository: Repository) -> None:
    tenants = service(repository)
    key, other = await tenants.create_key("acme", "laptop"), await tenants.create_key("umbrella", "")
    assert len(bytes.fromhex(key.removeprefix("sk-pl-"))) == 32
    found = await tenants.authenticate(key)
    assert found is not None
    assert found.name == "acme"
    assert (await tenants.authenticate(other)) != found
    for wrong in ("", "sk-pl-", key[:-1], key + "0", key.upper(), "x" * 10_000):
        assert await tenants.authenticate(wrong) is None


async def test_two_keys_of_one_tenant_are_the_same_tenant(repository: Repository) -> None:
    tenants = service(repository)
    one, two = await tenants.create_key("acme", "a"), await tenants.create_key("acme", "b")
    assert one != two
    assert await tenants.authenticate(one) == await tenants.authenticate(two)


async def test_the_key_is_stored_nowhere_and_useless_under_another_secret(
    repository: Repository, tmp_path: Path
) -> None:
    key = await service(repository).create_key("acme", "")
    await repository.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # noqa: ASYNC240
    assert key[:12].encode() in stored, "the prefix is stored, so the search below means something"
    assert key.encode() not in stored
    assert await service(repository, pepper="t").authenticate(key) is None


async def test_a_revoked_key_ends_within_the_cache_time(repository: Repository) -> None:
    clock = Clock()
    tenants = service(repository, clock=clock)
    key = await tenants.create_key("acme", "")
    assert await tenants.authenticate(key) is not None
    (record,) = await tenants.keys()
    assert await tenants.revoke(record.id)
    assert not await tenants.revoke(record.id)
    assert await tenants.authenticate(key) is not None  # a running gateway remembers
    clock.now = 30
    assert await tenants.authenticate(key) is None
    (record,) = await tenants.keys()
    assert record.revoked_at is not None


async def test_the_first_key_is_made_once(repository: Repository) -> None:
    tenants = service(repository)
    key = await tenants.first_key()
    assert key is not None
    found = await tenants.authenticate(key)
    assert found is not None
    assert found.name == "default"
    assert await tenants.first_key() is None
