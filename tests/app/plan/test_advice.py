from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.plan.advice import Expectation, Question, expect, recommended
from app.plan.hardware import roofline


def question(target: str, **given: float) -> Question:
    values = {"load": 200.0, "alpha": 0.8, "draft_s": 0.010, "rtt_s": 0.040, **given}
    return Question(
        roof=roofline("h100", target, 2048),
        load=values["load"],
        alpha=values["alpha"],
        draft_s=values["draft_s"],
        rtt_s=values["rtt_s"],
        tokens=64,
    )


def test_drafts_pay_for_a_target_that_is_slower_than_the_drafter() -> None:
    found = [expect(question("llama_70b_bf16"), policy) for policy in ("cloud", "eager")]
    assert recommended(found, 200.0).policy == "eager"
    assert found[1].steps_per_token < 1 <= found[0].steps_per_token
    assert found[0].batch == pytest.approx(200 * found[0].itl_s, rel=0.5)  # Little's law


def test_a_drafter_slower_than_the_target_loses_to_cloud_only() -> None:
    found = [expect(question("llama_8b_bf16", load=1000.0), policy) for policy in ("cloud", "sync", "hold")]
    assert recommended(found, 1000.0).policy == "cloud"


def test_a_quick_policy_that_serves_too_little_is_not_recommended() -> None:
    quick = Expectation("hold", 8, 4.0, 0.010, 0.011, 500.0, 0.4, 1.0)
    enough = Expectation("eager", 8, 9.0, 0.020, 0.021, 990.0, 0.7, 1.0)
    assert recommended([quick, enough], 1000.0) is enough


def test_plan_answers_on_the_command_line() -> None:
    arguments = ["plan", "--load", "100", "--tokens", "32", "--json"]
    answer = json.loads(CliRunner().invoke(app, arguments).stdout.splitlines()[-1])
    assert answer["simulated"] is True
    assert [row["policy"] for row in answer["policies"]] == ["cloud", "sync", "hold", "eager", "auto"]
    assert answer["single_step_ms"] == pytest.approx(21.0, rel=0.01)


def test_an_unknown_target_is_answered_with_those_there_are() -> None:
    result = CliRunner().invoke(app, ["plan", "--target", "abacus"])
    assert result.exit_code == 2
    assert "llama_8b_bf16" in result.output
