"""Drafts from afar where vLLM plans a step ahead (async_scheduling): what its model runner has to do for it. Applied in
the worker's process, by the plugin's proposer.

vLLM's runner is ready for steps of unknown outcome: a draft model in the worker proposes on the GPU, and what was
accepted moves the next step's positions there, before the scheduler has heard of it. Only two things are the draft
model's, and are done here instead:
- After a step: each request's newest token, and how many of its tokens count, as tensors that the next step reads.
- Before a step: the drafts, as one row per request of the step before. The scheduler has sent their ids: behind a token
  that nobody knows yet, at a position that may not be reached, a draft can be checked all the same. If it is wrong, it
  is rejected.

Written against vLLM 0.32's older model runner (v1/worker/gpu_model_runner.py); the newer one takes no custom proposer.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


def newest(sampled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of (requests, drafts + 1) sampled ids, -1 where a draft was rejected: the last that counts, and how many do."""
    counts = (sampled >= 0).sum(dim=1)
    last = sampled.gather(1, (counts - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    return last, counts.to(torch.int32)


def rows(drafts: dict[str, list[int]], before: dict[str, int], width: int) -> torch.Tensor:
    """(requests of the step before, width): each one's drafts, by its row there."""
    table = torch.zeros((max(before.values(), default=-1) + 1, width), dtype=torch.int32)
    for name, tokens in drafts.items():
        row = before.get(name)
        if row is not None:
            table[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    return table


def install() -> None:
    """Idempotent."""
    if GPUModelRunner._bookkeeping_sync is _bookkeeping_sync:
        return
    GPUModelRunner._bookkeeping_sync = _bookkeeping_sync
    GPUModelRunner._prepare_input_ids = _prepare_input_ids


_book = GPUModelRunner._bookkeeping_sync
_prepare = GPUModelRunner._prepare_input_ids


def _bookkeeping_sync(runner: Any, scheduler_output: Any, sampler_output: Any, *args: Any, **kwargs: Any) -> Any:
    runner._copy_valid_sampled_token_count(*newest(sampler_output.sampled_token_ids))
    return _book(runner, scheduler_output, sampler_output, *args, **kwargs)


def _prepare_input_ids(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
    drafts, before = scheduler_output.scheduled_spec_decode_tokens, runner.input_batch.prev_req_id_to_index
    runner._draft_token_ids = runner._draft_token_req_ids = None
    if drafts and before:
        table = rows(drafts, before, runner.num_spec_tokens)
        if runner.device.type == "cuda":
            table = table.pin_memory()
        runner._draft_token_ids = table.to(runner.device, non_blocking=True)
        runner.prev_num_spec_tokens = runner.num_spec_tokens
    return _prepare(runner, scheduler_output, *args, **kwargs)
