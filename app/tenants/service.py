"""API keys: made, checked, revoked.

A key is `sk-pl-` and 256 random bits, so a plain HMAC is enough to store it by: nothing that long can be guessed, and
there is no password for a slow hash to protect. The HMAC's secret makes a stolen database useless to try keys against.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from app.tenants.repository import KeyRecord, Repository

PREFIX = "sk-pl-"
_SHOWN = len(PREFIX) + 6
_CACHED_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class TenantId:
    """Who a request is for."""

    id: str
    name: str


class Tenants:
    def __init__(
        self,
        repository: Repository,
        *,
        secret: str,
        cache_s: float,
        clock: Callable[[], float],
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`clock` is monotonic, seconds. A revoked key works for at most `cache_s` more."""
        self._repository = repository
        self._secret = secret.encode()
        self._cache_s = cache_s
        self._clock = clock
        self._random = random
        self._cache: dict[bytes, tuple[float, TenantId]] = {}

    async def authenticate(self, key: str) -> TenantId | None:
        """The tenant of this key; None if the key is wrong or revoked."""
        if not key.startswith(PREFIX) or len(key) > 200:
            return None
        digest, now = self._digest(key), self._clock()
        cached = self._cache.get(digest)
        if cached is not None and now < cached[0]:
            return cached[1]
        self._cache.pop(digest, None)
        found = await self._repository.tenant_of_key(digest)
        if found is None:
            return None  # not cached: wrong keys are unbounded in number, and a new key must work at once
        while len(self._cache) >= _CACHED_KEYS:
            del self._cache[next(iter(self._cache))]
        tenant = TenantId(*found)
        self._cache[digest] = (now + self._cache_s, tenant)
        return tenant

    async def create_key(self, tenant: str, name: str) -> str:
        """A new key of the tenant of that name, who is created if there is none. The key can't be had again."""
        now = datetime.now(UTC)
        tenant_id = await self._repository.tenant_id(tenant)
        if tenant_id is None:
            tenant_id = self._id("tn")
            await self._repository.add_tenant(id=tenant_id, name=tenant, now=now)
        key = PREFIX + self._random(32).hex()
        await self._repository.add_key(
            id=self._id("key"), tenant_id=tenant_id, name=name, prefix=key[:_SHOWN], digest=self._digest(key), now=now
        )
        return key

    async def first_key(self) -> str | None:
        """A key of the tenant `default` if there is no key at all; otherwise None."""
        if await self._repository.keys():
            return None
        return await self.create_key("default", "initial")

    async def keys(self) -> list[KeyRecord]:
        return await self._repository.keys()

    async def revoke(self, key_id: str) -> bool:
        return await self._repository.revoke(key_id, now=datetime.now(UTC))

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode(), hashlib.sha256)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._random(8).hex()}"
