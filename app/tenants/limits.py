"""A tenant's quotas: token buckets that refill through the minute. Pure: the clock is an argument.

What a request will cost is not known when it begins, so tokens are charged as they are used: a bucket may be overdrawn,
and the tenant's next request then waits until it is level again. A stream that has begun is never stopped by a quota.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.tenants.terms import TenantId
from edge.protocol.errors import RateLimited

MINUTE_S = 60.0
_CONCURRENCY_RETRY_S = 1.0
"""Nobody knows when one of its own streams will end."""


class Bucket:
    """Holds at most a minute's worth, and begins full."""

    def __init__(self, per_minute: int, now: float) -> None:
        """`now`, here and below: seconds, monotonic."""
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at = now

    def level(self, now: float) -> float:
        """What is left; below 0 when overdrawn."""
        self._level = min(self.per_minute, self._level + (now - self._at) * self.per_minute / MINUTE_S)
        self._at = now
        return self._level

    def spend(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount

    def wait_s(self, amount: float, now: float) -> float:
        """How long until `amount` can be spent without overdrawing (a full bucket is enough for any); 0: now."""
        lacking = min(amount, self.per_minute) - self.level(now)
        return max(0.0, lacking) * MINUTE_S / self.per_minute


@dataclass(frozen=True, slots=True)
class Standing:
    """How a tenant stands with one quota."""

    limit: int
    remaining: int
    reset_s: float
    """Until all of it is there again."""


class Quotas:
    """All tenants' quotas, in memory: each gateway process grants them by itself."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def request(self, tenant: TenantId) -> None:
        """Charge a request. Raises RateLimited, and then charges nothing."""
        bucket, now = self._bucket(tenant, "requests"), self._clock()
        if bucket is None:
            return
        self._require(bucket, 1, now, "requests")
        bucket.spend(1, now)

    def admit(self, tenant: TenantId, *, tokens: int, streams: int, running: int) -> None:
        """Whether `streams` more with `tokens` of prompt may begin beside those `running`. Raises RateLimited."""
        most = tenant.terms.concurrent_streams
        if most is not None and running + streams > most:
            raise RateLimited(
                f"At most {most} streams of yours run at a time; {running} do.", retry_after_s=_CONCURRENCY_RETRY_S
            )
        bucket = self._bucket(tenant, "tokens")
        if bucket is not None:
            self._require(bucket, tokens, self._clock(), "tokens")

    def spend_tokens(self, tenant: TenantId, tokens: int) -> None:
        bucket = self._bucket(tenant, "tokens")
        if bucket is not None:
            bucket.spend(tokens, self._clock())

    def take_drafts(self, tenant: TenantId, tokens: int) -> bool:
        """Charge a draft; False: it is over the quota, and nothing is charged."""
        bucket, now = self._bucket(tenant, "draft_tokens"), self._clock()
        if bucket is None:
            return True
        if bucket.wait_s(tokens, now) > 0:
            return False
        bucket.spend(tokens, now)
        return True

    def standing(self, tenant: TenantId) -> dict[str, Standing]:
        """Of the quotas on requests and tokens, those that the tenant has."""
        now, found = self._clock(), {}
        for quota in ("requests", "tokens"):
            bucket = self._bucket(tenant, quota)
            if bucket is not None:
                remaining = max(0, int(bucket.level(now)))
                found[quota] = Standing(bucket.per_minute, remaining, bucket.wait_s(bucket.per_minute, now))
        return found

    def _bucket(self, tenant: TenantId, quota: str) -> Bucket | None:
        """None: the tenant has no such quota. One that the operator changes begins anew."""
        key, per_minute = (tenant.id, quota), getattr(tenant.terms, f"{quota}_per_minute")
        if per_minute is None:
            self._buckets.pop(key, None)
            return None
        bucket = self._buckets.get(key)
        if bucket is None or bucket.per_minute != per_minute:
            bucket = self._buckets[key] = Bucket(per_minute, self._clock())
        return bucket

    def _require(self, bucket: Bucket, amount: float, now: float, what: str) -> None:
        wait_s = bucket.wait_s(amount, now)
        if wait_s > 0:
            raise RateLimited(f"Your quota is {bucket.per_minute} {what} a minute.", retry_after_s=wait_s)
