"""What a device gets: no server in the base install, and a start that doesn't make anybody wait."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLOUD_ONLY = frozenset(("aiosqlite", "alembic", "fastapi", "prometheus-client", "ray", "sqlalchemy", "torch", "vllm"))
SERVERS = CLOUD_ONLY | {"llama-cpp-python", "llguidance", "starlette", "uvicorn", "uvloop"}
COLD_S = 1.5


def closure(wanted: list[str]) -> set[str]:
    """Names of all that pip installs for these requirements here, by the metadata of what is installed."""
    found: set[str] = set()
    todo = [Requirement(text) for text in wanted]
    while todo:
        requirement = todo.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        extras = requirement.extras or {""}
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            continue
        todo += [
            need
            for need in map(Requirement, needs)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)
        ]
        for need in todo:
            need.marker = None  # judged above, with the extras that were asked for
    return found


def test_the_base_install_pulls_no_server() -> None:
    assert not closure(PROJECT["dependencies"]) & SERVERS


def test_the_endpoint_pulls_nothing_of_the_gateway() -> None:
    extras = PROJECT["optional-dependencies"]
    installed = closure(PROJECT["dependencies"] + extras["serve"])
    assert {"starlette", "uvicorn"} <= installed
    assert not installed & CLOUD_ONLY


def test_pipx_can_run_it_by_the_projects_name() -> None:
    assert PROJECT["entry-points"]["pipx.run"]["paceline"] == "edge.cli:main"


@pytest.mark.parametrize(
    "modules", ["edge.cli, edge.chat, edge.drafters.llama_cpp", "edge.cli, edge.serve.command, edge.drafters.llama_cpp"]
)
def test_before_the_model_is_loaded_a_start_computes_for_less_than_its_bound(modules: str) -> None:
    before = _children_s()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, cwd=ROOT)  # noqa: S603
    assert _children_s() - before < COLD_S


def test_the_command_line_itself_imports_next_to_nothing() -> None:
    code = "import sys, edge.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603
    assert not {"numpy", "pydantic", "websockets", "httpx2", "llama_cpp", "starlette"} & set(done.stdout.split())


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
