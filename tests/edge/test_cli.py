from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge.cli import app
from edge.privacy import DisclosureLog, Over, Prompt
from tests.app.serving import Running, scripted, serving, until

runner = CliRunner()


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PACELINE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PACELINE_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)


def disclose(tmp_path: Path) -> DisclosureLog:
    log = DisclosureLog(tmp_path / "state" / "disclosures.jsonl")
    for number in (1, 2):
        log.write(Prompt(f"r{number}", "2026-01-02T03:04:05Z", "http://g", "m", "full", "hybrid", 3, f"text {number}"))
    log.write(Over("r1", 99, 4, "drafted words"))
    return log


async def start(running: Running, *arguments: str) -> asyncio.subprocess.Process:
    """The program itself, its stdin and stdout pipes."""
    own = {
        "PACELINE_URL": running.url,
        "PACELINE_API_KEY": running.key,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "edge.cli",
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **own},
        # A shell starts its background jobs, these tests perhaps, with Ctrl-C ignored, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


async def run(running: Running, *arguments: str, text: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    process = await start(running, *arguments)
    out, err = await process.communicate(text.encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in ("chat", "doctor", "models", "disclosures", "version"))
    script = "import edge.cli, sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    assert "edge.cli" in found.stdout
    assert not {"numpy", "llama_cpp", "pydantic", "websockets", "httpx2"} & set(found.stdout.split())


def test_version() -> None:
    assert runner.invoke(app, ["version"]).output.startswith("paceline ")


def test_models_are_listed(tmp_path: Path) -> None:
    assert "holds no models" in runner.invoke(app, ["models", "list"]).output
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(b"GGUF")
    assert "tiny.gguf" in runner.invoke(app, ["models", "list"]).output
    listed = json.loads(runner.invoke(app, ["models", "list", "--json"]).output)
    assert listed == {"directory": str(tmp_path / "models"), "models": [{"name": "tiny.gguf", "bytes": 4}]}


def test_disclosures_are_shown_counted_and_cleared(tmp_path: Path) -> None:
    assert "Nothing has left" in runner.invoke(app, ["disclosures"]).output
    disclose(tmp_path)
    shown = runner.invoke(app, ["disclosures"]).output
    assert "4 draft tokens, 99 bytes up" in shown
    assert "text 1" in shown
    assert "drafted words" in shown
    assert "interrupted" in shown
    assert "text 1" not in runner.invoke(app, ["disclosures", "--last", "1"]).output
    found = json.loads(runner.invoke(app, ["disclosures", "--json"]).output)["disclosures"]
    assert [d["sent"]["id"] for d in found] == ["r1", "r2"]
    assert "Deleted" in runner.invoke(app, ["disclosures", "--clear"]).output
    assert "Nothing has left" in runner.invoke(app, ["disclosures"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chat", "hi", "--url", "ftp://x"], "not the address of a gateway"),
        (["chat", "hi", "--drafter", "none", "--url", "http://127.0.0.1:9"], "paceline-gateway serve"),
        (["chat", "hi", "--draft-model", "no-such-model"], "models pull"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, arguments, env={"COLUMNS": "400"})
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DRAFT_THREADS", "many")
    result = runner.invoke(app, ["chat", "hi"])
    assert result.exit_code == 1
    assert "PACELINE_DRAFT_THREADS" in result.stderr


async def test_a_pipe_gets_the_answer_and_stderr_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", scripted(length=20)) as running:
        code, out, err = await run(running, "chat", "tell me", "--drafter", "ngram", "--compare")
        assert code == 0, err
        assert 10 < len(out.strip()) < 60
        assert "hybrid" not in out
        assert "cloud only" in err
        assert "Same text" in err
        code, again, _ = await run(running, "chat", "tell me", "--drafter", "none", "--json", "--compare")
        answer = json.loads(again)
        assert code == 0
        assert answer["text"] == out.removesuffix("\n")
        assert answer["identical"] is True
        assert answer["figures"]["tokens"] == answer["cloud_only"]["figures"]["tokens"] == 20


async def test_a_conversation_goes_on_until_the_input_ends(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", scripted(length=8)) as running:
        code, out, err = await run(running, "chat", "--drafter", "none", text="hello\nand then\n/new\nhello\n")
        assert code == 0, err
        first, second, third = out.splitlines()
        assert first == third != second, "the same question, in a fresh conversation, has the same answer"
        log = DisclosureLog(tmp_path / "state" / "disclosures.jsonl").read()
        assert [d.sent.text for d in log] == [
            "user: hello",
            f"user: hello\nassistant: {first}\nuser: and then",
            "user: hello",
        ]


async def test_doctor_reports_in_json_too(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        code, out, _ = await run(running, "doctor", "--drafter", "ngram", "--json")
        report = json.loads(out)
    assert code == 0
    assert {check["name"] for check in report["checks"]} >= {"paceline", "gateway", "models", "target"}


async def test_ctrl_c_stops_the_answer_in_the_cloud_as_well(tmp_path: Path) -> None:
    engine = scripted(step_s=0.01)
    async with serving(tmp_path / "data", engine) as running:
        process = await start(running, "chat", "tell me", "--drafter", "none")
        assert process.stdout is not None
        await process.stdout.readexactly(10)
        assert engine.load().running == 1
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert b"Traceback" not in err
        await until(lambda: engine.load().running == 0)


async def test_serve_says_at_its_start_that_the_gateway_refuses_its_key(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        status, out, err = await run(running, "serve", "--port", "0", "--drafter", "none", "--key", "sk-pl-wrong")
    assert (status, out) == (1, "")
    assert "refused the API key" in err
    assert "PACELINE_API_KEY" in err
    assert ".." not in err
