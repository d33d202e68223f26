"""Runs the tests of the page's modules with Node.js's own test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
HERE = Path(__file__).parent


@pytest.mark.skipif(NODE is None, reason="Node.js runs the page's modules, and is not installed")
@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name)
def test_modules(file: Path) -> None:
    assert NODE is not None
    run = subprocess.run(  # noqa: S603
        [NODE, "--test", str(file)], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
