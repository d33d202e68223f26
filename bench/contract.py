"""The contract suite's results by drafter: its tests, run by pytest where they stand (tests/edge/drafters)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_SUITE: Final = Path(__file__).parents[1] / "tests" / "edge" / "drafters"
_FILES: Final[Mapping[str, str]] = {
    "llama.cpp": "test_llama_cpp.py",
    "by text": "test_by_text.py",
    "n-gram": "test_ngram.py",
    "scripted": "test_scripted.py",
    "MLC, its model made up": "test_mlc.py",
    "MLC-LLM": "test_mlc.py",
}
"""Where each drafter's contract is tested. In MLC's file the tests that end in `_on_mlc` are the real one's."""


@dataclass
class Outcome:
    counts: Counter[str] = field(default_factory=Counter)
    """Of `passed`, `failed`, `skipped`."""
    reasons: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.counts:
            return "not run"
        if self.counts.keys() == {"skipped"}:
            return f"not run: {self.reasons[0]}"
        ran = self.counts["passed"] + self.counts["failed"]
        return f"{self.counts['passed']} of {ran} passed"


class _Results:
    """A pytest plugin that counts."""

    def __init__(self) -> None:
        self.outcomes = {name: Outcome() for name in _FILES}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        outcome = self.outcomes[drafter_of(report.nodeid)]
        outcome.counts[report.outcome] += 1
        if report.outcome == "skipped":
            outcome.reasons.append(str(report.longrepr[2]).removeprefix("Skipped: "))


def drafter_of(test: str) -> str:
    """Whose contract the test with this pytest id holds."""
    file, _, name = test.partition("::")
    names = [drafter for drafter, where in _FILES.items() if Path(file).name == where]
    return names[-1] if "_on_mlc" in name else names[0]


def run() -> dict[str, Outcome]:
    """By drafter. Takes minutes: Hypothesis looks for histories that leave a mark."""
    import pytest

    results = _Results()
    files = [str(_SUITE / file) for file in dict.fromkeys(_FILES.values())]
    with redirect_stdout(sys.stderr):  # the bench's last line is its JSON
        pytest.main(["-q", "-k", "contract", "-p", "no:cacheprovider", "--no-header", "-rN", *files], plugins=[results])
    return results.outcomes
