"""Starts vLLM with the plugin: its arguments, and the environment that its processes begin in."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.engine.vllm_hooks import require_hooks

SCHEDULER: Final = "app.engine.vllm_plugin.DraftScheduler"
_OURS: Final = (
    "model", "scheduler_cls", "scheduling_policy", "speculative_config", "async_scheduling", "max_num_seqs",
    "max_model_len",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start."""

    model: str
    """A folder, or a name on the hub."""
    context: int
    streams: int
    draft_tokens: int
    """Drafts of one stream checked in a step; 0: none, and vLLM without speculation."""
    threads: int = 1
    """Of the model, on a CPU."""
    arguments: str = ""
    """More for vLLM: flags as on its command line, or a JSON object of AsyncEngineArgs' fields."""
    ahead: bool = False
    """Plan a step while the one before still runs, as vLLM does on GPUs by default (vllm_ahead.py)."""
    scheduler: str = SCHEDULER
    """Name of a class: the plugin's scheduler, or one derived from it."""


def start(plan: Plan) -> Any:
    """A running AsyncLLM. Blocks for the half minute that it takes. Raises RuntimeError or ValueError, saying why."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # both are read when vllm is imported
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    require_hooks(ahead=plan.ahead)
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = engine_args(plan)
    with environment(plan):
        config = arguments.create_engine_config()
        # Not as an argument: vLLM refuses it beside a draft source of our kind, since its worker couldn't place the
        # drafts. Ours can.
        config.scheduler_config.async_scheduling = plan.ahead and bool(plan.draft_tokens)
        return AsyncLLM.from_vllm_config(config, disable_log_stats=arguments.disable_log_stats)


def engine_args(plan: Plan) -> Any:
    """vLLM's AsyncEngineArgs. Raises ValueError for arguments that it doesn't know or that are ours to give."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    values = _defaults(plan) | _given(plan.arguments) | _required(plan)
    try:
        return AsyncEngineArgs(**values)
    except TypeError as error:
        raise ValueError(f"PACELINE_VLLM_ARGS: {error}") from error


def _defaults(plan: Plan) -> dict[str, Any]:
    from vllm.platforms import current_platform

    values: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True}
    values["structured_outputs_config"] = {"backend": "guidance"}  # the library that our own engines use
    if current_platform.is_cpu():
        # bfloat16 falls back to slow code on most CPUs; blocks of 128 make prefix reuse coarse.
        values |= {"dtype": "float32", "enforce_eager": True, "block_size": 32}
    return values


def _required(plan: Plan) -> dict[str, Any]:
    values: dict[str, Any] = {"model": plan.model, "max_model_len": plan.context, "max_num_seqs": plan.streams}
    values |= {"scheduler_cls": plan.scheduler, "scheduling_policy": "priority"}
    if plan.draft_tokens:
        values["speculative_config"] = {
            "method": "custom_class",
            "model": "app.engine.vllm_plugin.NullProposer",
            "num_speculative_tokens": plan.draft_tokens,
        }
    return values


def _given(arguments: str) -> dict[str, Any]:
    text = arguments.strip()
    given = _from_json(text) if text.startswith("{") else _from_flags(text)
    ours = sorted(set(given) & set(_OURS))
    if ours:
        raise ValueError(f"PACELINE_VLLM_ARGS: {', '.join(ours)} can't be given there; Paceline sets it itself")
    return given


def _from_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"PACELINE_VLLM_ARGS is not JSON: {error}") from error
    return dict(found)


def _from_flags(text: str) -> dict[str, Any]:
    """Only what was given: vLLM's own defaults are left to it."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def refuse(message: str) -> None:
        raise ValueError(f"PACELINE_VLLM_ARGS: {message}")

    parser: Any = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    parser.error = refuse
    flags = shlex.split(text)
    plain, chosen = vars(parser.parse_args([])), vars(parser.parse_args(flags))
    return {name: value for name, value in chosen.items() if value != plain[name]} if flags else {}


@contextmanager
def environment(plan: Plan) -> Iterator[None]:
    """For the processes that are started in the body; a variable that is set already stays as it is."""
    added = {name: value for name, value in _variables(plan).items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _variables(plan: Plan) -> dict[str, str]:
    from vllm.platforms import current_platform

    # A process with threads and an event loop can't be forked safely.
    values = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1"}
    if Path(plan.model).is_dir():
        values["HF_HUB_OFFLINE"] = "1"
    if current_platform.is_cpu():
        # Threads that are bound to cores fight with whatever else runs there.
        values |= {"OMP_NUM_THREADS": str(plan.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        values["VLLM_CPU_KVCACHE_SPACE"] = "2"
        if engine_args(plan).enforce_eager:
            # Else one function is compiled all the same, when logprobs are first asked for: all streams wait for that.
            values["TORCH_COMPILE_DISABLE"] = "1"
    return values
