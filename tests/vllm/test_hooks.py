"""The installed vLLM has what the plugin needs, and one that hadn't would be refused in a line."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("ahead", [False, True])
def test_nothing_is_missing(ahead: bool) -> None:
    from app.engine.vllm_hooks import missing_hooks

    assert missing_hooks(ahead=ahead) == []


def test_what_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from app.engine.vllm_hooks import missing_hooks, require_hooks

    monkeypatch.delattr(GPUModelRunner, "_prepare_input_ids")
    assert missing_hooks() == []  # it is only for steps that are planned ahead
    monkeypatch.setattr(Scheduler, "update_draft_token_ids", lambda self: None)
    with pytest.raises(RuntimeError, match="_prepare_input_ids") as found:
        require_hooks(ahead=True)
    assert "Scheduler.update_draft_token_ids(self, draft_token_ids)" in str(found.value)
    assert "\n" not in str(found.value)
