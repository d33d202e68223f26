"""How long a step of a target takes on named hardware: the roofline, from datasheet figures (hardware.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

_DATA = Path(__file__).with_name("hardware.toml")


class StepTime(Protocol):
    """Seconds that a step takes."""

    def step_s(self, tokens: int, streams: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Linear:
    """The scripted engine's: so much a step and so much a token, whatever the streams."""

    base_s: float
    token_s: float = 0.0

    def step_s(self, tokens: int, streams: int) -> float:
        return self.base_s + self.token_s * tokens


@dataclass(frozen=True, slots=True)
class Roofline:
    """Weights are read once a step, each token computed, and each stream's KV cache read. Flat below `knee_tokens`."""

    weights_s: float
    """Reading the weights."""
    token_s: float
    """Computing a token."""
    stream_s: float
    """Reading a stream's keys and values."""
    streams: int
    """As many fit into the memory beside the weights."""

    def step_s(self, tokens: int, streams: int) -> float:
        return max(self.weights_s, self.token_s * tokens) + self.stream_s * streams

    @property
    def single_s(self) -> float:
        """A step of one stream and one token."""
        return self.step_s(1, 1)

    @property
    def knee_tokens(self) -> float:
        """Tokens in a step from which on computing binds and not memory."""
        return self.weights_s / self.token_s


@dataclass(frozen=True, slots=True)
class Load:
    """The fixed inputs' load: one kind of stream."""

    context_tokens: int
    output_tokens: int
    edge_draft_s_per_token: float
    alpha: float
    rtt_s: float
    rtt_jitter_s: float
    slo_times_single_stream_step: tuple[float, ...]


def roofline(hardware: str, target: str, context_tokens: int) -> Roofline:
    """`context_tokens`: of a stream, on average over its life. Raises ValueError for an unknown name."""
    card, model = _named("hardware", hardware), _named("targets", target)
    cards = model["cards"]
    bandwidth = card["bandwidth_bytes_s"] * cards
    kv_bytes = model["kv_bytes_per_token"] * context_tokens
    return Roofline(
        weights_s=model["weight_bytes"] / bandwidth,
        token_s=model["flop_per_token"] / (card["peak_flops"] * cards * card["mfu"]),
        stream_s=kv_bytes / bandwidth,
        streams=max(0, int((card["memory_bytes"] * cards - model["weight_bytes"]) / kv_bytes)),
    )


def fixed_load() -> Load:
    values = dict(_data()["load"])
    values["slo_times_single_stream_step"] = tuple(values["slo_times_single_stream_step"])
    return Load(**values)


def names(kind: str) -> list[str]:
    """What `hardware` or `targets` there are."""
    return list(_data()[kind])


def _named(kind: str, name: str) -> dict[str, Any]:
    table = _data()[kind]
    if name not in table:
        raise ValueError(f"{name!r} is none of the {kind} {', '.join(table)}")
    found: dict[str, Any] = table[name]
    return found


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))
