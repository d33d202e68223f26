"""Tenants and their API keys: made, checked, changed, rotated, revoked.

A key is `sk-pl-` and 256 random bits, so a plain HMAC is enough to store it by: nothing that long can be guessed, and
there is no password for a slow hash to protect. The HMAC's secret makes a stolen database useless to try keys against.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from app.tenants.repository import KeyRecord, Repository, TenantRecord
from app.tenants.terms import TenantId, Terms

__all__ = ["DatabaseAway", "NewKey", "NoSuchTenant", "TenantExists", "TenantId", "Tenants"]

PREFIX = "sk-pl-"
_SHOWN = len(PREFIX) + 6
_CACHED_KEYS = 10_000


class NoSuchTenant(Exception):
    """By that name."""


class TenantExists(Exception):
    """By that name."""


class DatabaseAway(Exception):
    """So nobody can say whose key it is."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made: the only time that it can be read."""

    key: str
    record: KeyRecord


class Tenants:
    def __init__(
        self,
        repository: Repository,
        *,
        secret: str,
        cache_s: float,
        clock: Callable[[], float],
        random: Callable[[int], bytes] = secrets.token_bytes,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock` is monotonic, seconds. A key that another process revokes works for at most `cache_s` more."""
        self._repository = repository
        self._secret = secret.encode()
        self._cache_s = cache_s
        self._clock = clock
        self._random = random
        self._wall = wall
        self._cache: dict[bytes, tuple[float, TenantId]] = {}

    async def authenticate(self, key: str) -> TenantId | None:
        """The tenant of this key; None if the key is wrong or revoked. Raises DatabaseAway."""
        if not key.startswith(PREFIX) or len(key) > 200:
            return None
        digest, now = self._digest(key), self._clock()
        cached = self._cache.get(digest)
        if cached is not None and now < cached[0]:
            return cached[1]
        self._cache.pop(digest, None)
        wall = self._wall()
        try:
            found = await self._repository.tenant_of_key(digest, now=wall)
        except (SQLAlchemyError, OSError) as error:
            raise DatabaseAway from error
        if found is None:
            return None  # not cached: wrong keys are unbounded in number, and a new key must work at once
        while len(self._cache) >= _CACHED_KEYS:
            del self._cache[next(iter(self._cache))]
        tenant, ends = found
        valid_s = self._cache_s if ends is None else min(self._cache_s, (ends - wall).total_seconds())
        self._cache[digest] = (now + valid_s, tenant)
        return tenant

    # Tenants

    async def tenants(self) -> list[TenantRecord]:
        return await self._repository.tenants()

    async def tenant(self, name: str) -> TenantRecord:
        """Raises NoSuchTenant."""
        found = await self._repository.tenant(name)
        if found is None:
            raise NoSuchTenant(name)
        return found

    async def create_tenant(self, name: str, terms: Terms = Terms()) -> TenantRecord:  # noqa: B008
        """Raises TenantExists."""
        try:
            await self._repository.add_tenant(id=self._id("tn"), name=name, now=self._wall(), terms=terms)
        except IntegrityError:
            raise TenantExists(name) from None
        return await self.tenant(name)

    async def set_terms(self, name: str, terms: Terms) -> TenantRecord:
        """Another gateway goes by them within its `cache_s`, this one at once. Raises NoSuchTenant."""
        await self._repository.set_terms((await self.tenant(name)).id, terms)
        self._cache.clear()
        return await self.tenant(name)

    # Keys

    async def create_key(self, tenant: str, name: str) -> str:
        """A new key of the tenant of that name, who is created if there is none. The key can't be had again."""
        return (await self.add_key(tenant, name, create=True)).key

    async def add_key(self, tenant: str, name: str, *, create: bool = False) -> NewKey:
        """Raises NoSuchTenant, unless the tenant may be created."""
        found = await self._repository.tenant(tenant)
        if found is None:
            if not create:
                raise NoSuchTenant(tenant)
            found = await self.create_tenant(tenant)
        now, id, key = self._wall(), self._id("key"), PREFIX + self._random(32).hex()  # noqa: A001
        await self._repository.add_key(
            id=id, tenant_id=found.id, name=name, prefix=key[:_SHOWN], digest=self._digest(key), now=now
        )
        return NewKey(key, KeyRecord(id, tenant, name, key[:_SHOWN], now, None))

    async def rotate(self, key_id: str, *, overlap_s: float) -> NewKey | None:
        """A new key in the place of this one, which is good for `overlap_s` more. None: it isn't a valid key."""
        now = self._wall()
        old = await self._repository.revoke(key_id, at=now + timedelta(seconds=overlap_s), now=now)
        if old is None:
            return None
        self._cache.clear()
        return await self.add_key(old.tenant, old.name)

    async def revoke(self, key_id: str) -> bool:
        """This gateway refuses the key at once, another within its `cache_s`. False: it isn't a valid key."""
        now = self._wall()
        revoked = await self._repository.revoke(key_id, at=now, now=now) is not None
        self._cache.clear()
        return revoked

    async def keys(self, tenant: str | None = None) -> list[KeyRecord]:
        """All, or those of the tenant of that name."""
        return await self._repository.keys(tenant)

    async def first_key(self) -> str | None:
        """A key of the tenant `default` if there is no key at all; otherwise None."""
        if await self._repository.keys():
            return None
        return await self.create_key("default", "initial")

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode(), hashlib.sha256)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._random(8).hex()}"
