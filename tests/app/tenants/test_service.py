from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.tenants.repository import Repository, open_database
from app.tenants.service import NoSuchTenant, TenantExists, Tenants
from app.tenants.terms import Terms


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def service(repository: Repository, *, pepper: str = "s", clock: Clock | None = None, **options: Any) -> Tenants:
    return Tenants(repository, secret=pepper, cache_s=30, clock=clock or Clock(), **options)


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


async def test_the_key_is_stored_nowhere_and_useless_under_another_secret(tmp_path: Path) -> None:
    repository = Repository(open_database(f"sqlite+aiosqlite:///{tmp_path}/test.db"))
    await repository.upgrade()
    key = await service(repository).create_key("acme", "")
    await repository.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # noqa: ASYNC240
    assert key[:12].encode() in stored, "the prefix is stored, so the search below means something"
    assert key.encode() not in stored
    assert await service(repository, pepper="t").authenticate(key) is None
    await repository.close()


async def test_a_revoked_key_ends_at_once_here_and_within_the_cache_time_elsewhere(repository: Repository) -> None:
    clock = Clock()
    tenants, elsewhere = service(repository), service(repository, clock=clock)
    key = await tenants.create_key("acme", "")
    assert await tenants.authenticate(key) is not None
    assert await elsewhere.authenticate(key) is not None
    (record,) = await tenants.keys()
    assert await tenants.revoke(record.id)
    assert not await tenants.revoke(record.id)
    assert await tenants.authenticate(key) is None
    assert await elsewhere.authenticate(key) is not None  # another gateway remembers
    clock.now = 30
    assert await elsewhere.authenticate(key) is None
    (record,) = await tenants.keys()
    assert record.revoked_at is not None


async def test_a_rotated_key_goes_on_for_the_overlap_and_no_cache_makes_it_longer(repository: Repository) -> None:
    clock, wall = Clock(), [datetime(2026, 1, 1, tzinfo=UTC)]
    tenants = service(repository, clock=clock, wall=lambda: wall[0])
    old = await tenants.add_key("acme", "laptop", create=True)
    new = await tenants.rotate(old.record.id, overlap_s=10)
    assert new is not None
    assert (new.record.tenant, new.record.name) == ("acme", "laptop")
    assert await tenants.authenticate(old.key) == await tenants.authenticate(new.key) is not None
    clock.now = 10  # less than the cache would keep it
    wall[0] += timedelta(seconds=10)
    assert await tenants.authenticate(old.key) is None
    assert await tenants.authenticate(new.key) is not None
    assert await tenants.rotate(old.record.id, overlap_s=10) is None, "it is revoked"


async def test_revoking_a_rotated_key_ends_its_overlap(repository: Repository) -> None:
    tenants = service(repository)
    old = await tenants.add_key("acme", "", create=True)
    await tenants.rotate(old.record.id, overlap_s=3600)
    assert await tenants.authenticate(old.key) is not None
    assert await tenants.revoke(old.record.id)
    assert await tenants.authenticate(old.key) is None


async def test_terms_are_stored_changed_and_given_with_the_key(repository: Repository) -> None:
    tenants = service(repository)
    terms = Terms(weight=3.0, requests_per_minute=10, models=("a", "b"), policies=("eager",))
    await tenants.create_tenant("acme", terms)
    key = await tenants.create_key("acme", "")
    found = await tenants.authenticate(key)
    assert found is not None
    assert found.terms == terms
    changed = Terms(tokens_per_minute=5, models=())
    assert (await tenants.set_terms("acme", changed)).terms == changed
    found = await tenants.authenticate(key)
    assert found is not None
    assert found.terms == changed, "nothing is remembered of the old"
    assert [record.terms for record in await tenants.tenants()] == [changed]


async def test_a_name_is_one_tenants_and_an_unknown_one_is_nobodys(repository: Repository) -> None:
    tenants = service(repository)
    await tenants.create_tenant("acme")
    with pytest.raises(TenantExists):
        await tenants.create_tenant("acme")
    for asking in (tenants.tenant("x"), tenants.set_terms("x", Terms()), tenants.add_key("x", "")):
        with pytest.raises(NoSuchTenant):
            await asking


async def test_the_first_key_is_made_once(repository: Repository) -> None:
    tenants = service(repository)
    key = await tenants.first_key()
    assert key is not None
    found = await tenants.authenticate(key)
    assert found is not None
    assert found.name == "default"
    assert await tenants.first_key() is None
