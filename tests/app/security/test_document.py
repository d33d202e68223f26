"""docs/security.md names the tests that hold each line: they are there."""

from __future__ import annotations

import re

from app.config import ROOT


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (ROOT / "docs/security.md").read_text()
    named = set(re.findall(r"`([\w/.]*test[\w/.]*\.(?:py|mjs))`", text))
    assert len(named) > 15
    paths = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*test*")}
    assert not {name for name in named if name not in paths and not any(path.endswith(f"/{name}") for path in paths)}
