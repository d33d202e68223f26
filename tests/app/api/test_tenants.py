"""The operator's API of tenants, keys and usage, on both databases."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.app.serving import MODEL, Running, serving

ADMIN = "admin-key-of-the-tests"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


@pytest.fixture
async def gateway(tmp_path: Path, database_url: str) -> AsyncIterator[Running]:
    async with serving(tmp_path, database_url=database_url, admin_key=SecretStr(ADMIN)) as running:
        yield running


@pytest.fixture
async def admin(gateway: Running) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with httpx2.AsyncClient(base_url=f"{gateway.url}/admin", headers=headers) as http:
        yield http


async def ask(gateway: Running, key: str) -> int:
    async with httpx2.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {key}"}) as http:
        return (await http.post("/v1/chat/completions", json=ASK)).status_code


async def test_a_tenant_is_made_given_a_key_bounded_and_freed(gateway: Running, admin: httpx2.AsyncClient) -> None:
    made = await admin.post("/tenants", json={"name": "acme", "weight": 3, "policies": ["eager"]})
    assert made.status_code == 201
    assert made.json()["terms"]["weight"] == 3
    assert made.json()["terms"]["policies"] == ["eager"]
    key = (await admin.post("/tenants/acme/keys", json={"name": "laptop"})).json()["key"]
    assert await ask(gateway, key) == 200
    changed = await admin.patch("/tenants/acme", json={"requests_per_minute": 1})
    assert (
        changed.json()["terms"] | {"weight": 3, "policies": ["eager"], "requests_per_minute": 1}
        == (changed.json()["terms"])
    ), "what was left out stayed"
    assert [await ask(gateway, key) for _ in range(2)] == [200, 429], "it counts at once"
    await admin.patch("/tenants/acme", json={"requests_per_minute": None})
    assert await ask(gateway, key) == 200
    names = [tenant["name"] for tenant in (await admin.get("/tenants")).json()]
    assert names == ["acme", "default"]


async def test_a_key_is_shown_once_rotated_and_revoked(gateway: Running, admin: httpx2.AsyncClient) -> None:
    await admin.post("/tenants", json={"name": "acme"})
    old = (await admin.post("/tenants/acme/keys", json={"name": "laptop"})).json()
    assert [key["key"] for key in (await admin.get("/tenants/acme/keys")).json()] == [None]
    new = (await admin.post(f"/keys/{old['id']}/rotate", json={"overlap_s": 60})).json()
    assert new["name"] == "laptop"
    assert [await ask(gateway, key) for key in (old["key"], new["key"])] == [200, 200]
    assert (await admin.delete(f"/keys/{old['id']}")).status_code == 204
    assert [await ask(gateway, key) for key in (old["key"], new["key"])] == [401, 200]
    assert (await admin.delete(f"/keys/{old['id']}")).status_code == 404


async def test_usage_is_up_to_date_as_json_and_as_csv(gateway: Running, admin: httpx2.AsyncClient) -> None:
    await ask(gateway, gateway.key)
    (line,) = (await admin.get("/usage")).json()["data"]
    assert (line["tenant"], line["model"], line["requests"], line["completion"]) == ("default", MODEL, 1, 5)
    answer = await admin.get("/usage", params={"format": "csv", "tenant": "default", "since": line["day"]})
    assert answer.headers["Content-Type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert row == {name: str(value) for name, value in line.items()}
    assert (await admin.get("/usage", params={"until": "2020-01-01"})).json()["data"] == []


async def test_a_tenant_sees_its_own_usage_only(gateway: Running, admin: httpx2.AsyncClient) -> None:
    await admin.post("/tenants", json={"name": "acme"})
    key = (await admin.post("/tenants/acme/keys", json={})).json()["key"]
    await ask(gateway, gateway.key)
    async with httpx2.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {key}"}) as http:
        assert (await http.get("/v1/usage")).json()["data"] == []
        await http.post("/v1/chat/completions", json=ASK)
        assert [line["tenant"] for line in (await http.get("/v1/usage")).json()["data"]] == ["acme"]
        assert (await http.get("/v1/usage", params={"tenant": "default"})).json()["data"][0]["tenant"] == "acme"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/tenants", {"name": "default"}, 409),
        ("POST", "/tenants", {"name": "a/b"}, 400),
        ("POST", "/tenants", {"name": "a", "weight": 0}, 400),
        ("POST", "/tenants", {"name": "a", "tokens_per_minute": 0}, 400),
        ("POST", "/tenants", {"name": "a", "policies": ["fast"]}, 400),
        ("PATCH", "/tenants/default", {"wieght": 2}, 400),
        ("PATCH", "/tenants/nobody", {}, 404),
        ("GET", "/tenants/nobody", None, 404),
        ("POST", "/tenants/nobody/keys", {}, 404),
        ("POST", "/keys/nothing/rotate", {}, 404),
        ("DELETE", "/keys/nothing", None, 404),
        ("GET", "/usage?since=yesterday", None, 400),
    ],
)
async def test_mistakes_are_named(
    admin: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    answer = await admin.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


async def test_a_tenants_key_opens_nothing_of_the_operators(gateway: Running) -> None:
    async with httpx2.AsyncClient(base_url=gateway.url, headers=gateway.headers) as http:
        for method, path in (
            ("GET", "/admin/tenants"),
            ("GET", "/admin/usage"),
            ("POST", "/admin/tenants"),
            ("DELETE", "/admin/keys/x"),
        ):
            assert (await http.request(method, path)).status_code == 401, path
