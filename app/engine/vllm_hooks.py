"""What the plugin needs of vLLM beyond its public interface, checked by signature before an engine is started.

Checked in the gateway's process: there a missing hook is one line, in EngineCore it is a dead process.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any, Final

TESTED: Final = "0.32.0"
"""The version that the plugin was written against."""


def missing_hooks(*, ahead: bool = False) -> list[str]:
    """The names of the hooks that the installed vLLM lacks or has otherwise; empty: it will do. `ahead`: for planning
    steps ahead too.
    """
    from vllm.config import SchedulerConfig, SpeculativeConfig
    from vllm.outputs import RequestOutput
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.request_queue import RequestQueue
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequestType
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.engine.core_client import AsyncMPClient
    from vllm.v1.request import Request
    from vllm.v1.sample import rejection_sampler

    takes: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
        (Scheduler, "schedule", ("self",)),
        (Scheduler, "add_request", ("self", "request")),
        (Scheduler, "update_from_output", ("self", "scheduler_output", "model_runner_output")),
        (Scheduler, "update_draft_token_ids", ("self", "draft_token_ids")),
        (Scheduler, "get_num_unfinished_requests", ("self",)),
        (AsyncScheduler, "_update_request_with_output", ("self", "request", "new_token_ids")),
        (AsyncScheduler, "_update_after_schedule", ("self", "scheduler_output")),
        (Scheduler, "_free_request", ("self", "request")),
        (Scheduler, "_preempt_request", ("self", "request", "timestamp")),
        (RequestQueue, "remove_requests", ("self", "requests")),
        (AsyncLLM, "from_vllm_config", ("vllm_config", "disable_log_stats")),
        (AsyncLLM, "add_request", ("self", "request_id", "prompt", "params")),
        (AsyncLLM, "abort", ("self", "request_id")),
        (AsyncMPClient, "call_utility_async", ("self", "method", "args")),
        (RequestOutput, "__init__", ("self", "kv_transfer_params")),
        (rejection_sampler.RejectionSampler, "forward", ("metadata", "draft_probs", "logits", "sampling_metadata")),
        (rejection_sampler, "expand_batch_to_tokens", ("x", "cu_num_tokens", "num_tokens", "replace_from")),
    )
    if ahead:
        takes += _of_the_runner()
    wanting = [
        f"{owner.__name__}.{name}({', '.join(names)})" for owner, name, names in takes if not _takes(owner, name, names)
    ]
    fields = (
        (SchedulerConfig, "scheduler_cls"),
        (SchedulerConfig, "async_scheduling"),
        (SpeculativeConfig, "num_speculative_tokens"),
        (EngineCoreOutput, "kv_transfer_params"),
    )
    wanting += [f"{owner.__name__}.{field}" for owner, field in fields if field not in _fields(owner)]
    wanting += [] if hasattr(EngineCoreRequestType, "WAKEUP") else ["EngineCoreRequestType.WAKEUP"]
    source = "".join(inspect.getsource(owner.__init__) for owner in (Request, Scheduler, EngineCore))
    attributes = (
        "spec_token_ids", "next_decode_eligible_step", "num_output_placeholders", "num_computed_tokens",
        "running", "waiting", "max_num_running_reqs", "max_num_scheduled_tokens", "num_spec_tokens",
        "structured_output_manager", "check_for_draft_tokens", "priority",
    )  # fmt: skip
    return wanting + [f"self.{name}" for name in attributes if f"self.{name}" not in source]


def _of_the_runner() -> tuple[tuple[Any, str, tuple[str, ...]], ...]:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    return (
        (GPUModelRunner, "_bookkeeping_sync", ("self", "scheduler_output", "sampler_output")),
        (GPUModelRunner, "_prepare_input_ids", ("self", "scheduler_output")),
        (GPUModelRunner, "_copy_valid_sampled_token_count", ("next_token_ids", "valid_sampled_tokens_count")),
    )


def require_hooks(*, ahead: bool = False) -> None:
    """Raises RuntimeError, in one line, if the installed vLLM won't do."""
    import vllm

    missing = missing_hooks(ahead=ahead)
    if missing:
        raise RuntimeError(
            f"vLLM {vllm.__version__} lacks what Paceline's plugin needs (written for {TESTED}): {', '.join(missing)}"
        )


def _takes(owner: Any, name: str, parameters: Sequence[str]) -> bool:
    function = getattr(owner, name, None)
    return function is not None and set(parameters) <= set(inspect.signature(function).parameters)


def _fields(owner: Any) -> set[str]:
    if dataclasses.is_dataclass(owner):
        return {field.name for field in dataclasses.fields(owner)}
    return set(owner.__struct_fields__)
