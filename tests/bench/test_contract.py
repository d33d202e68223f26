from __future__ import annotations

from collections import Counter

import pytest

from bench.contract import Outcome, drafter_of


@pytest.mark.parametrize(
    ("test", "drafter"),
    [
        ("tests/edge/drafters/test_llama_cpp.py::test_contract", "llama.cpp"),
        ("tests/edge/drafters/test_by_text.py::test_contract_there_and_back", "by text"),
        ("tests/edge/drafters/test_mlc.py::test_contract", "MLC, its model made up"),
        ("tests/edge/drafters/test_mlc.py::test_contract_on_mlc", "MLC-LLM"),
    ],
)
def test_whose_contract_a_test_holds(test: str, drafter: str) -> None:
    assert drafter_of(test) == drafter


def test_what_was_skipped_was_not_run() -> None:
    assert str(Outcome()) == "not run"
    assert str(Outcome(Counter(skipped=2), ["no such runtime"])) == "not run: no such runtime"
    assert str(Outcome(Counter(passed=2, failed=1, skipped=1), ["…"])) == "2 of 3 passed"
