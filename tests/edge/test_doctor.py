from __future__ import annotations

from pathlib import Path

from edge.config import DeviceSettings
from edge.doctor import Check, Report, draft_model, draft_time, examine, examine_gateway, installed
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.openai.vocabulary import fingerprint
from tests.app.serving import scripted, serving


def settings(tmp_path: Path, **given: object) -> DeviceSettings:
    fields: dict[str, object] = {"state_dir": tmp_path / "state", "model_dir": tmp_path / "models"}
    return DeviceSettings(_env_file=None, **{**fields, **given})  # type: ignore[arg-type, call-arg]


def states(report: Report) -> dict[str, str]:
    return {check.name: check.state for check in report.checks}


async def test_a_healthy_device_gets_figures_and_a_verdict(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", scripted(step_s=0.004)) as running:
        report = Report([])
        drafter = ScriptedDrafter(running.script, right_with(0.8))
        await examine_gateway(
            settings(tmp_path, url=running.url, api_key=running.key), drafter, report, report.checks.append
        )
    assert report.healthy
    assert list(states(report)) == ["gateway", "models", "tokenizer", "round trip", "target", "drafter", "acceptance"]
    assert report.measured is not None
    assert report.verdict is not None
    assert report.measured.step_s >= 0.004
    assert 0.5 < report.measured.alpha < 1, "it was .8 by the script"
    assert set(report.verdict.itl_s) == {"cloud only", "eager", "hold", "synchronous"}


async def test_another_tokenizer_is_a_fault_and_the_rest_is_still_measured(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        report = Report([])
        drafter = ScriptedDrafter(running.script, right_with(1.0))
        drafter.fingerprint = fingerprint([b"a"], frozenset({0}))
        await examine_gateway(
            settings(tmp_path, url=running.url, api_key=running.key), drafter, report, report.checks.append
        )
    assert states(report)["tokenizer"] == "failed"
    assert states(report)["target"] == "ok"
    assert report.verdict is None
    assert not report.healthy


async def test_no_gateway_and_a_wrong_key_say_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        report = Report([])
        wrong = settings(tmp_path, url=running.url, api_key="sk-pl-wrong")
        await examine_gateway(wrong, None, report, report.checks.append)
        assert "PACELINE_API_KEY" in report.checks[-1].advice
        assert ".." not in report.checks[-1].advice
    report = Report([])
    await examine_gateway(wrong, None, report, report.checks.append)
    assert report.checks[-1].name == "gateway"
    assert "paceline-gateway serve" in report.checks[-1].advice
    assert not report.healthy


async def test_a_missing_model_is_told_and_never_fetched(tmp_path: Path) -> None:
    report = Report([])
    nowhere = settings(tmp_path, url="http://127.0.0.1:9", api_key="sk-pl-none")
    await examine(nowhere, report, report.checks.append)
    assert states(report)["draft model"] == "failed"
    assert "models pull" in draft_model(nowhere).advice
    assert not (tmp_path / "models").exists()
    assert draft_model(settings(tmp_path, drafter="ngram")).state == "absent"


def test_what_is_not_installed_is_no_fault() -> None:
    checks = {check.name: check for check in installed()}
    assert checks["paceline"].state == "ok"
    assert checks["MLC"] == Check("MLC", "absent", "not installed, not needed")


def test_a_drafter_without_ideas_has_no_speed() -> None:
    assert draft_time(ScriptedDrafter(scripted().script, right_with(1.0))) is not None
    assert draft_time(NgramDrafter()) is None
