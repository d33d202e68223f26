"""Prompts, answers and keys are in no log, no metric, no database, nobody else's error, and no core dump."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from app.tenants.export import as_csv
from app.tenants.repository import Repository, open_database
from app.tenants.terms import NAME
from edge.protocol import frames
from tests.app.api.peer import greeted, opening
from tests.app.security.files import everything
from tests.app.security.log import captured
from tests.app.serving import MODEL, Running, scripted, serving

CANARY = "canary"
WORD = [{"role": "user", "content": f"my {CANARY} sings"}]


async def provoke(running: Running) -> list[dict[str, Any]]:
    """Every kind of answer that there is, with the canary where content may be; gives the errors."""
    errors = []
    ask: dict[str, Any] = {"model": MODEL, "max_tokens": 8, "messages": WORD}
    bad_schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": CANARY}}}
    tool = {"type": "function", "function": {"name": "sing", "description": CANARY, "parameters": {"type": "object"}}}
    chats: list[dict[str, Any]] = [
        {},
        {"stream": True},
        {"tools": [tool], "tool_choice": "required"},
        {"response_format": {"type": "json_object"}, "stop": [CANARY]},
        {"prediction": {"type": "content", "content": CANARY}},
        {"response_format": bad_schema},
        {"messages": [{"role": CANARY, "content": CANARY}]},
        {"messages": [{"role": "user", "content": f"{CANARY} " * 5000}]},
        {"messages": [{"role": "user", "content": f"{CANARY}\ud800"}]},
        {"messages": [{"role": "user", "content": {CANARY: 1}}]},
        {"temperature": CANARY},
        {CANARY: 1},
    ]
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=30) as client:
        bodies = [("/v1/chat/completions", ask | change) for change in chats]
        bodies.append(("/v1/completions", {"model": MODEL, "prompt": CANARY, "max_tokens": 4}))
        bodies.append(("/v1/responses", {"model": MODEL, "input": CANARY, "max_output_tokens": 4, "store": False}))
        for path, body in bodies:
            json_headers = {"content-type": "application/json"}
            answer = await client.post(path, content=json.dumps(body).encode(), headers=json_headers)
            if answer.status_code >= 400:
                errors.append(answer.json()["error"])
        await client.post("/v1/chat/completions", content=f'{{"messages": "{CANARY}'.encode())
        await client.post("/v1/chat/completions", json=ask, headers={"authorization": f"Bearer sk-pl-{CANARY}"})
    async with greeted(running) as peer:
        await peer.send(frames.Open(1, MODEL, messages=(frames.Message("user", CANARY),), text=True, max_tokens=4))
        await peer.output(1)
        await peer.send(frames.Open(2, MODEL, messages=(frames.Message(CANARY, CANARY),)), frames.Resume(3, CANARY))
        await peer.expect(frames.Error, stream=3)
        await peer.socket.send(json.dumps(["open", 4, CANARY]).encode())
        await peer.expect(frames.Error)
    return errors


@pytest.mark.parametrize("style", ["json", "console"])
async def test_content_is_in_no_log_no_metric_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    with captured(style, monkeypatch) as log:
        async with serving(tmp_path, admin_key="admin") as running:
            await provoke(running)
            async with httpx2.AsyncClient(base_url=running.url, headers={"authorization": "Bearer admin"}) as client:
                shown = [(await client.get(path)).text for path in ("/metrics", "/readyz", "/admin/usage")]
    assert CANARY not in "".join(shown)
    assert log.getvalue().count("status") > 10
    assert CANARY not in log.getvalue()
    assert CANARY.encode() not in everything(tmp_path)


async def test_an_error_repeats_names_of_fields_but_no_content(running: Running) -> None:
    errors = await provoke(running)
    assert len(errors) >= 6
    quoted = {error["message"] for error in errors if CANARY in error["message"].replace(f"'{CANARY}'", "")}
    assert quoted <= {f"The schema can't be enforced: Invalid type: {CANARY}."}, "a schema's keyword, to its author"
    assert not any("sings" in error["message"] for error in errors)


@pytest.mark.parametrize("style", ["json", "console"])
async def test_a_fault_of_ours_is_logged_without_the_variables_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    engine = scripted()

    def fail(*_: object) -> None:
        content = WORD[0]["content"]
        raise RuntimeError("the engine's own words" if content else "")

    monkeypatch.setattr(engine, "submit", fail)
    with captured(style, monkeypatch) as log:
        async with serving(tmp_path, engine) as running:
            async with httpx2.AsyncClient(base_url=running.url, headers=running.headers) as client:
                body = {"model": MODEL, "messages": WORD}
                answer = await client.post("/v1/chat/completions", json=body)
            async with greeted(running) as peer:
                await peer.send(opening(1))
                await peer.closed()
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "The gateway failed. Its log says why."
    assert log.getvalue().count("the engine's own words") >= 2
    assert "Traceback" in log.getvalue()
    assert CANARY not in log.getvalue()
    assert running.key not in log.getvalue().partition("request")[2]


async def test_a_fault_of_the_database_is_told_without_its_parameters(tmp_path: Path) -> None:
    repository = Repository(open_database(f"sqlite+aiosqlite:///{tmp_path}/empty.db"))
    with pytest.raises(Exception, match="no such table") as raised:
        await repository.tenant(CANARY)
    await repository.close()
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("module", ["app", "edge"])
def test_a_process_that_crashes_leaves_no_core(module: str) -> None:
    code = f"import sys, resource; sys.argv = ['x', '--help']\nfrom {module}.cli import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    print('core', resource.getrlimit(resource.RLIMIT_CORE)[0])"

    def allow() -> None:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=allow)  # noqa: S603
    assert run.stdout.splitlines()[-1] == "core 0"


# A value that is logged or exported stays a value


def test_a_value_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for style in ("json", "console"):
        with captured(style, monkeypatch) as text:
            structlog.get_logger("paceline.test").warning("event", value="a\nforged=1\x1b[2J")
        assert len(text.getvalue().splitlines()) == 1
        assert "\x1b[2J" not in text.getvalue()


def test_a_tenants_name_can_not_be_a_formula_or_a_path() -> None:
    assert as_csv([]).startswith("day,tenant,model,requests")
    assert re.fullmatch(NAME, "acme")
    for name in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "a\nb", "../x", ""):
        assert re.search(NAME, name) is None
