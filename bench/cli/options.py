"""What several commands take, and how it is read."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.pairs import PAIRS
from bench.profiles import PROFILES, profile
from bench.prompts import SETS, prompt_set

NETWORKS = f"Of {', '.join(PROFILES)}; round-trip times in ms; or all."
Which = Annotated[str, typer.Option("--pair", help=f"Of models: {', '.join(PAIRS)} (1.5 GB, fetched once).")]
Asks = Annotated[str, typer.Option("--set", help=f"Of prompts: {', '.join(SETS)}.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]


def floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",") if part]


def networks(text: str) -> list[str]:
    """Names that there are. `all` is every profile."""
    asked = [part.strip() for part in text.split(",")]
    names = [name for part in asked for name in (PROFILES if part == "all" else (part,))]
    try:
        for name in names:
            profile(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return names


def pair_of(name: str) -> str:
    if name not in PAIRS:
        raise typer.BadParameter(f"no pair {name!r}: choose of {', '.join(PAIRS)}")
    return name


def bases(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in ("tiny", *PAIRS):
            raise typer.BadParameter(f"no base {name!r}: choose of tiny, {', '.join(PAIRS)}")
    return names


def asked(name: str, prompts: int) -> str:
    """A set of prompts that there is, and that holds so many."""
    try:
        held = len(prompt_set(name))
        if held < prompts:
            raise ValueError(f"the set {name} holds {held} prompts")
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        raise typer.BadParameter(str(error)) from None
    return name
