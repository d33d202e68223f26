from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from app.config import ROOT, Settings
from app.engine.batching import BatchingEngine
from app.engine.scheduler import Capacity
from app.engines import build_engine
from tests.app.serving import IsolatedSettings


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_this_machine_alone_may_use_the_default_secret(host: str) -> None:
    assert IsolatedSettings(host=host).loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "gateway.example"])  # noqa: S104
def test_the_default_secret_is_refused_outside_loopback(host: str) -> None:
    with pytest.raises(ValidationError, match="PACELINE_SECRET"):
        IsolatedSettings(host=host)
    IsolatedSettings(host=host, secret=SecretStr("x" * 32))


def test_the_target_is_a_path_or_a_file_of_the_model_cache(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert IsolatedSettings(target_model="a.gguf", model_dir=tmp_path).target_path == tmp_path / "a.gguf"
    path = str(tmp_path / "a.gguf")
    assert str(IsolatedSettings(target_model=path, model_dir=tmp_path / "else").target_path) == path


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"engine_streams": 300}, "PACELINE_ENGINE_STEP_TOKENS"),
        ({"engine_kv_tokens": 100, "context": 2048}, "PACELINE_ENGINE_KV_TOKENS"),
    ],
)
def test_an_engine_that_could_not_run_is_refused_by_name(fields: dict[str, int], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        IsolatedSettings.model_validate(fields)


def test_every_setting_is_in_the_example_file() -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#? ?PACELINE_([A-Z_]+)=", example, flags=re.M))
    assert {name.upper() for name in Settings.model_fields} <= named


def test_the_engines_limits_reach_its_scheduler() -> None:
    pytest.importorskip("llama_cpp")
    settings = IsolatedSettings(
        engine_streams=4,
        engine_kv_tokens=5000,
        engine_reserve_tokens=100,
        engine_prefill_slowdown=0.5,
        tenant_kv_share=0.25,
        engine_queue=3,
        engine_queue_s=7,
        engine_draft_tokens=5,
    )
    engine = build_engine(settings)
    assert isinstance(engine, BatchingEngine)
    assert engine.capacity == Capacity(
        sequences=4,
        context=settings.context,
        kv_tokens=5000,
        step_tokens=settings.engine_step_tokens,
        prefill_tokens=settings.engine_prefill_tokens,
        draft_tokens=5,
        queue=3,
        queue_s=7,
        prefill_slowdown=0.5,
        reserve_tokens=100,
        tenant_kv=0.25,
    )
