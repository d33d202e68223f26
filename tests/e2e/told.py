"""One place to ask, cloud-only or hybrid, whole or streamed, and what it told: in one form, so that a test of a fault
needn't say which.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import httpx2

from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.script import Script
from tests.e2e.endpoint import device_settings, endpoint
from tests.e2e.gateway import Gateway

Path_ = Literal["cloud", "hybrid"]
ADMIN = "admin-key-of-the-tests"
SAY: list[dict[str, Any]] = [{"role": "user", "content": "say something"}]
Fields = dict[str, Any]
CHAT: Fields = {"model": "scripted", "messages": SAY, "max_tokens": 24, "seed": 5}


@dataclass(slots=True)
class Choice:
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each."""
    reason: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Told:
    status: int
    headers: httpx2.Headers
    error: dict[str, Any] | None = None
    choices: list[Choice] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    chunks: list[dict[str, Any]] = field(default_factory=list)
    """Of a streamed answer."""

    @property
    def choice(self) -> Choice:
        assert self.status == 200, self.error
        (only,) = self.choices
        return only

    @property
    def tokens(self) -> int | None:
        return None if self.usage is None else int(self.usage["completion_tokens"])

    @property
    def accepted(self) -> int:
        """Drafts that became output."""
        assert self.usage is not None
        return int(self.usage["completion_tokens_details"]["accepted_prediction_tokens"])


def told_whole(response: httpx2.Response) -> Told:
    body = response.json()
    told = Told(response.status_code, response.headers, body.get("error"), usage=body.get("usage"))
    for found in body.get("choices", ()):
        message = found.get("message", {"content": found.get("text")})
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        logprobs = (found.get("logprobs") or {}).get("content", [])
        told.choices.append(Choice(message["content"] or "", calls, found["finish_reason"], logprobs))
    return told


def told_streamed(response: httpx2.Response) -> Told:
    """What a client puts together of the chunks; also what holds of every stream of chunks."""
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    told = Told(response.status_code, response.headers, chunks=[json.loads(line) for line in data])
    assert len({chunk["id"] for chunk in told.chunks}) == 1
    for chunk in told.chunks:
        told.usage = chunk.get("usage") or told.usage
        for found in chunk["choices"]:
            told.choices += [Choice() for _ in range(found["index"] + 1 - len(told.choices))]
            _add(told.choices[found["index"]], found)
    assert all(choice.reason for choice in told.choices)
    return told


def _add(choice: Choice, found: dict[str, Any]) -> None:
    assert not choice.reason, "nothing comes behind the reason"
    assert found["finish_reason"] != "", "a reason is there or isn't"
    delta = found["delta"]
    choice.reason = found["finish_reason"] or ""
    choice.text += delta.get("content") or ""
    choice.logprobs += (found.get("logprobs") or {}).get("content", [])
    for call in delta.get("tool_calls", ()):
        assert call["index"] in (len(choice.calls) - 1, len(choice.calls))
        if call["index"] == len(choice.calls):
            assert (call["type"], bool(call["id"])) == ("function", True), "of the first delta of a call"
            choice.calls.append((call["function"]["name"], ""))
        name, arguments = choice.calls[-1]
        choice.calls[-1] = (name, arguments + call["function"]["arguments"])


@dataclass(frozen=True)
class There:
    gateway: Gateway
    script: Script
    folder: Path
    path: Path_
    stream: bool
    url: str
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def ask(self, address: str = "chat/completions", body: Fields | None = None, **fields: Any) -> Told:
        """`body`: instead of CHAT; a field that is None is left out. Drafts take part wherever the path has any.

        A stream's usage is asked for if nothing is said of that.
        """
        whole = {name: value for name, value in ((body or CHAT) | fields).items() if value is not None}
        if self.path == "hybrid":
            whole["paceline"] = {"policy": "hold"}  # so that drafts come in time, and several tokens to a step
        if self.stream:
            whole["stream"] = True
            if "stream_options" not in fields:
                whole["stream_options"] = {"include_usage": True}
        async with httpx2.AsyncClient(headers=self.headers, timeout=30) as client:
            response = await client.post(f"{self.url}/v1/{address}", json=whole)
        if response.status_code != 200:
            return told_whole(response)
        assert response.headers.get("x-paceline-path", "cloud") == self.path, response.headers["x-paceline-why"]
        return told_streamed(response) if self.stream else told_whole(response)

    async def plain(self, **fields: Any) -> Told:
        """The same without any drafts: cloud-only and whole."""
        return await replace(self, path="cloud", stream=False, url=self.gateway.url).ask(**fields)

    async def speculated(self, said: str, *, certain: bool = True, **fields: Any) -> Told:
        """With drafts, some of which are accepted: the device's own, or cloud-only a prediction of what will be `said`.

        `certain`: some must have been accepted, if the usage tells.
        """
        prediction: Fields = {"prediction": {"type": "content", "content": said}} if self.path == "cloud" else {}
        told = await self.ask(**prediction, **fields)
        assert told.status == 200, told.error
        assert told.accepted > 0 or not certain
        return told

    async def tenant(self, **terms: Any) -> str:
        """A key of a new tenant."""
        name = f"tenant-{secrets.token_hex(4)}"
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with httpx2.AsyncClient(base_url=f"{self.gateway.url}/admin", headers=headers) as admin:
            (await admin.post("/tenants", json={"name": name, **terms})).raise_for_status()
            made = await admin.post(f"/tenants/{name}/keys", json={})
            made.raise_for_status()
        return str(made.json()["key"])

    @asynccontextmanager
    async def with_key(self, key: str) -> AsyncIterator[There]:
        """The same place for somebody with another key."""
        if self.path == "cloud":
            yield replace(self, key=key)
            return
        async with device(self.gateway, self.script, self.folder / "other", key) as url:
            yield replace(self, url=url, key=key)


@asynccontextmanager
async def device(gateway: Gateway, script: Script, state: Path, key: str) -> AsyncIterator[str]:
    """Its base URL. Of the drafts four in five are right."""
    drafter = ScriptedDrafter(script, right_with(0.8))
    async with endpoint(device_settings(state, gateway.url, key), drafter) as url:
        yield url


@asynccontextmanager
async def places(folder: Path, script: Script) -> AsyncIterator[dict[Path_, There]]:
    """One gateway, and one device before it."""
    async with (
        Gateway(folder / "gateway", script, step_s=0.0005, hold_ms=1000, admin_key=ADMIN) as gateway,
        device(gateway, script, folder / "device", gateway.key) as url,
    ):
        there = There(gateway, script, folder, "cloud", False, gateway.url, gateway.key)
        yield {"cloud": there, "hybrid": replace(there, path="hybrid", url=url)}
