from __future__ import annotations

from typing import Any

import pytest

from app.tenants.limits import Bucket, Quotas, Standing
from app.tenants.terms import TenantId, Terms
from edge.protocol.errors import RateLimited


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tenant(name: str = "acme", **terms: Any) -> TenantId:
    return TenantId(name, name, Terms(**terms))


def test_a_bucket_begins_full_and_refills_through_the_minute() -> None:
    bucket = Bucket(60, 0.0)
    bucket.spend(60, 0.0)
    assert bucket.wait_s(1, 0.0) == 1.0
    assert bucket.level(30.0) == 30
    assert bucket.level(500.0) == 60, "never more than a minute's worth"


def test_an_overdrawn_bucket_waits_until_it_is_level_again() -> None:
    bucket = Bucket(60, 0.0)
    bucket.spend(180, 0.0)
    assert bucket.wait_s(1, 0.0) == 121.0


def test_what_is_more_than_a_minutes_worth_may_go_when_the_bucket_is_full() -> None:
    bucket = Bucket(60, 0.0)
    assert bucket.wait_s(1000, 0.0) == 0
    bucket.spend(1, 0.0)
    assert bucket.wait_s(1000, 0.0) == 1.0


def test_requests_are_refused_with_the_time_to_come_back_and_a_refusal_costs_nothing() -> None:
    clock = Clock()
    quotas, acme = Quotas(clock), tenant(requests_per_minute=2)
    quotas.request(acme)
    quotas.request(acme)
    for _ in range(5):
        with pytest.raises(RateLimited, match="2 requests a minute") as refused:
            quotas.request(acme)
        assert refused.value.retry_after_s == 30
    clock.now = 30
    quotas.request(acme)
    quotas.request(tenant("umbrella", requests_per_minute=2))  # another's quota is its own


def test_tokens_are_charged_as_they_are_used_and_a_debt_keeps_the_next_request_out() -> None:
    clock = Clock()
    quotas, acme = Quotas(clock), tenant(tokens_per_minute=600)
    quotas.admit(acme, tokens=100, streams=1, running=0)
    quotas.spend_tokens(acme, 700)
    with pytest.raises(RateLimited, match="600 tokens a minute") as refused:
        quotas.admit(acme, tokens=100, streams=1, running=0)
    assert refused.value.retry_after_s == 20
    clock.now = 20
    quotas.admit(acme, tokens=100, streams=1, running=0)


def test_streams_are_counted_with_those_that_run() -> None:
    quotas, acme = Quotas(Clock()), tenant(concurrent_streams=3)
    quotas.admit(acme, tokens=1, streams=1, running=2)
    with pytest.raises(RateLimited, match="At most 3 streams"):
        quotas.admit(acme, tokens=1, streams=2, running=2)


def test_drafts_over_the_quota_are_not_taken_and_not_charged() -> None:
    clock = Clock()
    quotas, acme = Quotas(clock), tenant(draft_tokens_per_minute=60)
    assert quotas.take_drafts(acme, 58)
    assert not quotas.take_drafts(acme, 4)
    clock.now = 2
    assert quotas.take_drafts(acme, 4)
    assert quotas.take_drafts(tenant("free"), 10**9)


def test_the_standing_is_of_the_quotas_that_there_are() -> None:
    clock = Clock()
    quotas, acme = Quotas(clock), tenant(requests_per_minute=60, draft_tokens_per_minute=5)
    quotas.request(acme)
    assert quotas.standing(acme) == {"requests": Standing(60, 59, 1.0)}
    assert quotas.standing(tenant("free")) == {}
    quotas.spend_tokens(in_debt := tenant("debt", tokens_per_minute=10), 30)
    assert quotas.standing(in_debt)["tokens"].remaining == 0


def test_a_changed_quota_counts_from_now_on() -> None:
    quotas = Quotas(Clock())
    quotas.request(tenant(requests_per_minute=1))
    with pytest.raises(RateLimited):
        quotas.request(tenant(requests_per_minute=1))
    quotas.request(tenant(requests_per_minute=2))
    assert quotas.standing(tenant(requests_per_minute=2))["requests"].limit == 2
    quotas.request(tenant())
    assert quotas.standing(tenant()) == {}
