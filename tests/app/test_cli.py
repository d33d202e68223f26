from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)


def test_keys_are_made_listed_and_revoked() -> None:
    made = runner.invoke(app, ["keys", "create", "--tenant", "acme", "--name", "laptop"])
    assert made.exit_code == 0, made.output
    key = made.output.strip()
    assert re.fullmatch(r"sk-pl-[0-9a-f]{64}", key)
    listed = runner.invoke(app, ["keys", "list"], env={"COLUMNS": "200"})
    assert "acme" in listed.output
    assert key not in listed.output
    key_id = re.search(r"key_[0-9a-f]+", listed.output)
    assert key_id is not None
    assert runner.invoke(app, ["keys", "revoke", key_id[0]]).exit_code == 0
    assert runner.invoke(app, ["keys", "revoke", key_id[0]]).exit_code == 2


def test_a_missing_model_says_what_to_do() -> None:
    result = runner.invoke(app, ["serve", "--model", "absent.gguf"])
    assert result.exit_code == 2
    assert "paceline-edge models pull" in result.output
    assert "Traceback" not in result.output


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs the extra `llama`")
def test_a_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "junk.gguf").write_bytes(b"not a model")
    command = [sys.executable, "-m", "app", "serve", "--port", "0", "--model", "junk.gguf"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)  # noqa: S603
    assert result.returncode == 3
    assert "junk.gguf" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_setting_is_named() -> None:
    result = runner.invoke(app, ["serve"], env={"PACELINE_PORT": "many"})
    assert result.exit_code == 2
    assert "PACELINE_PORT" in result.output
    result = runner.invoke(app, ["serve", "--host", "0.0.0.0"])  # noqa: S104
    assert result.exit_code == 2
    assert "PACELINE_SECRET" in result.output


def test_it_serves_and_ctrl_c_stops_it_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app", "serve", "--engine", "scripted", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603
        assert process.stderr is not None
        shown = ""
        for line in process.stderr:
            shown += line
            if "Gateway on" in line:
                break
        process.send_signal(signal.SIGINT)
        shown += process.stderr.read()
        code = process.wait(30)
    key = (tmp_path / "paceline-data" / "initial-key").read_text().strip()
    assert key in shown
    assert (tmp_path / "paceline-data" / "initial-key").stat().st_mode & 0o777 == 0o600
    assert "Traceback" not in shown
    assert code == 0, shown


WIDE = {"COLUMNS": "250"}


def test_a_tenants_terms_are_made_changed_lifted_and_listed() -> None:
    made = runner.invoke(app, ["tenants", "create", "acme", "--weight", "3", "--tokens-per-minute", "9000"], env=WIDE)
    assert made.exit_code == 0, made.output
    assert re.search(r"acme\s*│\s*3\s*│\s*–\s*│\s*9000\s*│", made.output)
    again = runner.invoke(app, ["tenants", "create", "acme"])
    assert again.exit_code == 2
    assert "tenants set" in again.output
    change = ["tenants", "set", "acme", "--lift", "tokens-per-minute", "--models", "a,b", "--policies", "eager"]
    changed = runner.invoke(app, change, env=WIDE)
    assert re.search(r"acme\s*│\s*3\s*│\s*–\s*│\s*–\s*│\s*–\s*│\s*–\s*│\s*a, b\s*│\s*eager\s*│", changed.output)
    assert "acme" in runner.invoke(app, ["tenants", "list"], env=WIDE).output


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["tenants", "set", "nobody"], "tenants list"),
        (["tenants", "create", "a/b"], "letters"),
        (["tenants", "create", "acme", "--policies", "fast"], "eager, hold"),
        (["tenants", "set", "default", "--lift", "gravity"], "requests-per-minute"),
        (["keys", "rotate", "key_0"], "no valid key"),
        (["keys", "create", "--tenant", "a b"], "letters"),
    ],
)
def test_a_mistake_with_tenants_says_what_to_do(command: list[str], says: str) -> None:
    result = runner.invoke(app, command, env=WIDE)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_key_is_rotated_and_usage_comes_as_a_table_and_as_csv() -> None:
    runner.invoke(app, ["keys", "create", "--tenant", "acme"])
    found = re.search(r"key_[0-9a-f]+", runner.invoke(app, ["keys", "list", "--tenant", "acme"], env=WIDE).output)
    assert found is not None
    rotated = runner.invoke(app, ["keys", "rotate", found[0], "--overlap", "1"])
    assert re.fullmatch(r"sk-pl-[0-9a-f]{64}", rotated.output.strip())
    assert len(re.findall(r"key_[0-9a-f]+", runner.invoke(app, ["keys", "list"], env=WIDE).output)) == 2
    assert runner.invoke(app, ["usage", "--csv"]).output.startswith("day,tenant,model,requests,")
    assert "rolled" not in runner.invoke(app, ["usage", "--since", "2026-01-01"], env=WIDE).output


def test_a_database_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql+asyncpg://me:hunter2@/x?host={tmp_path}"
    result = runner.invoke(app, ["tenants", "list"], env={"PACELINE_DATABASE_URL": url} | WIDE)
    assert result.exit_code == 3
    assert "can't be used" in result.output
    assert "hunter2" not in result.output


def test_ids_are_never_cut_on_a_narrow_terminal() -> None:
    assert runner.invoke(app, ["keys", "create", "--tenant", "acme"]).exit_code == 0
    listed = runner.invoke(app, ["keys", "list"], env={"COLUMNS": "60"})
    assert "…" not in re.sub(r"sk-pl-[0-9a-f]+…", "", listed.output)  # of a key only its beginning is kept
    assert re.search(r"key_[0-9a-f]{12,}", listed.output)


def test_a_port_in_use_is_said_before_a_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = runner.invoke(app, ["serve", "--engine", "scripted", "--port", str(port)])
    assert result.exit_code == 2
    assert f"Port {port} of 127.0.0.1 is in use" in result.output


def test_minus_h_helps_at_every_level() -> None:
    for command in ([], ["serve"], ["keys", "create"]):
        result = runner.invoke(app, [*command, "-h"])
        assert result.exit_code == 0, result.output
        assert "Usage" in result.output
