"""`python -m bench.fake_quant FOLDER`: the small language model with weights and activations rounded to few bits.

"Fake": values are rounded to the widths' levels and computed in F32, so it says what a width costs in quality and
nothing about speed. For widths that llama.cpp has no kernels for, above all activations in 4 bits.

- Weights of the layers' matrices: in groups of 32 along a row, symmetric, round to nearest, one F16 scale a group (as
  MLC's q4f16_1 does it). The shared embedding and output matrix stays in F16.
- Activations, where they enter such a matrix: symmetric, a scale for each token; 16 bits are F16.

Reads a Task as JSON on standard input and prints a Reading as a line of JSON for each width asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.tiny_lm import TinyLm, load
from bench.windows import WINDOW, windows

GROUP = 32


def rounded(x: Tensor, bits: int, group: int) -> Tensor:
    """`x` (…, n), each `group` of a row on the 2^bits − 1 levels around 0 that its largest value spans."""
    levels = 2 ** (bits - 1) - 1
    parts = x.unflatten(-1, (-1, group))
    scale = (parts.abs().amax(-1, keepdim=True) / levels).half().float().clamp_min(1e-8)
    return ((parts / scale).round().clamp(-levels, levels) * scale).flatten(-2)


def _activations(bits: int) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
    def enter(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (x,) = given
        return (x.half().float() if bits == 16 else rounded(x, bits, x.shape[-1]),)

    return enter


def quantised(folder: Path, weight_bits: int, activation_bits: int) -> TinyLm:
    """The model so. 32 bits: as they are."""
    model = load(folder)
    with torch.no_grad():
        model.token_embd.weight.copy_(model.token_embd.weight.half().float())
        for layer in (part for part in model.blk.modules() if isinstance(part, nn.Linear)):
            if weight_bits == 16:
                layer.weight.copy_(layer.weight.half().float())
            elif weight_bits < 16:
                layer.weight.copy_(rounded(layer.weight, weight_bits, GROUP))
            if activation_bits < 32:
                layer.register_forward_pre_hook(_activations(activation_bits))
    return model


def weight_bytes(model: TinyLm, bits: int) -> int:
    """What they would take, packed, with a scale of 16 bits a group."""
    inner: int = sum(part.weight.numel() for part in model.blk.modules() if isinstance(part, nn.Linear))
    others: int = sum(p.numel() for p in model.parameters()) - inner
    return round(inner * (bits + (16 / GROUP if bits < 16 else 0)) / 8) + 2 * others


def read(model: TinyLm, target: TinyLm, task: dict[str, Any]) -> dict[str, Any]:
    """`task`: `text`, token ids; `answers`, the target's: pairs of context and output."""
    losses: list[float] = []
    shared: list[float] = []
    for window in windows(task["text"]):
        ids = torch.tensor(window)
        own, its = (m(ids[None])[0, WINDOW // 2 - 1 : -1].log_softmax(-1) for m in (model, target))
        losses += (-own.gather(1, ids[WINDOW // 2 :, None])[:, 0]).tolist()
        shared += torch.minimum(own.exp(), its.exp()).sum(-1).tolist()
    agreed = []
    for context, output in task["answers"]:
        row = model(torch.tensor([context + output]))[0, len(context) - 1 : -1]
        agreed.append((row.argmax(-1) == torch.tensor(output)).tolist())
    return {"losses": sum(losses) / len(losses), "overlap": sum(shared) / len(shared), "agreed": agreed}


def readings(folder: Path, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    target = quantised(folder, 16, 16)
    for weight_bits, activation_bits in task["widths"]:
        model = quantised(folder, weight_bits, activation_bits)
        made = {"weight_bits": weight_bits, "activation_bits": activation_bits}
        yield made | {"bytes": weight_bytes(model, weight_bits)} | read(model, target, task)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        for reading in readings(Path(sys.argv[1]), json.load(sys.stdin)):
            sys.stdout.write(json.dumps(reading) + "\n")
            sys.stdout.flush()
