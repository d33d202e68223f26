"""`bench quant`: what fewer bits do to a draft: perplexity, α, E[A], speed, memory.

    text ──torch──► small language model, FP32 ──► F16, the target ──llama.cpp──► 8, 4, 3, 2 bits
                                                └──torch───────► W4A16 … W2A16, W4A8, W4A4, rounded ("fake")

The base must never have been in 4 bits, or what they lose is lost already. So a small model is trained for it (once,
about 15 minutes on one CPU thread; bench/tiny_lm.py). Rows of the two pairs at hand, both 4-bit once, say that they
are no test.

α: at each place of the target's greedy answers, is the draft's likeliest token the target's next? Overlap: the mean of
Σ min(p, q) along text that neither has seen, p and q the two's probabilities at temperature 1: how often the best
possible sampling would accept, and free of the loops that a small model's greedy answers run into.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench import king_james, pairs
from bench.quantised import COLUMNS, Reading, claim, row
from bench.report import Report
from bench.windows import WINDOW, windows
from edge.errors import EdgeError
from edge.evaluate import PROMPTS, Reader
from edge.llama import quantize
from edge.models import default_directory
from edge.protocol.frames import Message

KINDS = ("Q8_0", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K")
"""llama.cpp's, in 8, 4, 4, 3 and 2 bits. Its CPU kernels take activations in 8."""
WIDTHS = ((16, 16), (8, 16), (4, 16), (3, 16), (2, 16), (8, 8), (4, 8), (4, 4))
"""Of weights and activations, rounded in torch."""
TINY = "tiny LM, FP32"
_OPENING = 32
"""Tokens of a chapter that the small model goes on from."""
_SAME = 0.01
_Answers = list[tuple[list[int], list[int]]]
Tell = Callable[[str, int, int], None]
"""(what, done, of)."""


@dataclass(frozen=True, slots=True)
class Settings:
    bases: Sequence[str] = ("tiny",)
    answers: int = 40
    tokens: int = 64
    """Of each answer."""
    text_tokens: int = 8192
    steps: int = 1200
    """Of the training."""


class Trained(msgspec.Struct, frozen=True):
    """A line of bench.tiny_lm."""

    step: int
    of: int
    loss: float


class Rounded(msgspec.Struct, frozen=True):
    """A line of bench.fake_quant."""

    weight_bits: int
    activation_bits: int
    bytes: int
    losses: float
    overlap: float
    agreed: list[list[bool]]


def torch_python() -> str:
    """A Python that has torch: this one, or vLLM's. Raises EdgeError."""
    if find_spec("torch") is not None:
        return sys.executable
    beside = Path(".venv-vllm/bin/python")
    if not beside.is_file():
        raise EdgeError("The small model is trained with torch, which isn't here: make install-vllm.")
    return str(beside.absolute())


def _child(module: str, *arguments: str, given: bytes = b"") -> Iterator[bytes]:
    """The lines that it prints. Raises EdgeError with its last words if it fails."""
    command = [torch_python(), "-m", module, *arguments]
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise EdgeError(f"{module} has no pipes.")
        process.stdin.write(given)
        process.stdin.close()
        yield from process.stdout
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
    if process.returncode:
        raise EdgeError(f"{module} failed: {said[-1] if said else process.returncode}")


def trained(directory: Path, texts: list[str], steps: int, tell: Tell) -> Path:
    """The folder of the small model; trained if it isn't there."""
    folder = directory / f"tiny-lm-{steps}"
    if not (folder / "tiny-lm-F32.gguf").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "text.txt"
        text.write_text("\n".join(texts) + "\n", encoding="utf-8")
        for line in _child("bench.tiny_lm", str(text), str(folder), "--steps", str(steps)):
            at = msgspec.json.decode(line, type=Trained)
            tell(f"training, loss {at.loss:.2f}", at.step, at.of)
    return folder


def made(source: Path, kind: str, folder: Path) -> Path:
    """`source` as `kind`, in the folder of the bench's own; made if it isn't there."""
    folder.mkdir(parents=True, exist_ok=True)
    goal = folder / f"{source.stem.removesuffix('-F32').removesuffix('-F16').removesuffix('-Q4_K_M')}-{kind}.gguf"
    if not goal.is_file():
        quantize(source, goal, kind, threads=1)
    return goal


def probabilities(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Of logits, (V,) each: (N, V)."""
    wide = np.stack(rows).astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    np.exp(wide, out=wide)
    wide /= wide.sum(axis=1, keepdims=True)
    return wide


def along(draft: Reader, target: Reader, text: Sequence[int]) -> tuple[float, float]:
    """Perplexity of the draft, and its overlap with the target."""
    losses: list[float] = []
    shared: list[float] = []
    for window in windows(text):
        own, its = (probabilities(reader.rows(window)[WINDOW // 2 - 1 : -1]) for reader in (draft, target))
        losses += (-np.log(own[np.arange(WINDOW // 2), window[WINDOW // 2 :]])).tolist()
        shared += np.minimum(own, its).sum(axis=1).tolist()
    return math.exp(sum(losses) / len(losses)), sum(shared) / len(shared)


def agreed(draft: Reader, answers: _Answers) -> list[list[bool]]:
    found = []
    for context, output in answers:
        rows = draft.rows([*context, *output])[len(context) - 1 : -1]
        found.append([int(row.argmax()) == token for row, token in zip(rows, output, strict=True)])
    return found


@dataclass(frozen=True, slots=True)
class Base:
    """A target, what it is asked, and the drafts that are made of it."""

    name: str
    never_4_bit: bool
    target: Path
    drafts: dict[str, tuple[Path, int]]
    """Kind of weights → file, and bits of the activations."""
    text_tokens: int
    answers: int
    tokens: int


def _read_base(base: Base, kept: Sequence[str], task: dict[str, Any], tell: Tell) -> Iterator[Reading]:
    """The target's reading first. `task` is filled with what the small model's rounded drafts are to read."""
    target = Reader(base.target, 1)
    try:
        vocabulary = target.model.vocabulary
        chapters = [vocabulary.encode(chapter) for chapter in kept]
        text = [token for chapter in chapters for token in chapter][: base.text_tokens]
        contexts = [chapter[:_OPENING] for chapter in chapters]
        if not base.never_4_bit:
            contexts = [vocabulary.render([Message("user", prompt)]) for prompt in PROMPTS]
        answers = [(context, target.greedy(context, base.tokens)) for context in contexts[: base.answers]]
        task |= {"text": text, "answers": answers}
        kind = base.target.stem.rpartition("-")[2]
        drafts = {kind: (base.target, 16 if kind == "F16" else 8), **base.drafts}
        for done, (kind, (path, activation_bits)) in enumerate(drafts.items(), start=1):
            tell(base.name, done, len(drafts))
            draft = Reader(path, 1)
            try:
                perplexity, overlap = along(draft, target, text)
                size = draft.model.bytes
                yield Reading(
                    base=base.name,
                    never_4_bit=base.never_4_bit,
                    weights=kind,
                    weight_bits=8 * size / draft.model.parameters,
                    activation_bits=activation_bits,
                    by="llama.cpp",
                    perplexity=perplexity,
                    overlap=overlap,
                    agreed=agreed(draft, answers),
                    bytes=size,
                    tokens_per_s=1 / draft.token_s(text),
                )
            finally:
                draft.close()
    finally:
        target.close()


def _rounded(folder: Path, task: dict[str, Any], weights: int, tell: Tell) -> Iterator[Reading]:
    given = msgspec.json.encode({**task, "widths": WIDTHS})
    for done, line in enumerate(_child("bench.fake_quant", str(folder), given=given), start=1):
        found = msgspec.json.decode(line, type=Rounded)
        tell("rounding in torch", done, len(WIDTHS))
        yield Reading(
            base=TINY,
            never_4_bit=True,
            weights=f"W{found.weight_bits}A{found.activation_bits}",
            weight_bits=8 * found.bytes / weights,
            activation_bits=found.activation_bits,
            by="rounded, torch",
            perplexity=math.exp(found.losses),
            overlap=found.overlap,
            agreed=found.agreed,
            bytes=found.bytes,
        )


def _small(folder: Path, settings: Settings) -> Base:
    source = folder / "tiny-lm-F32.gguf"
    kinds = {kind: (made(source, kind, folder), 8) for kind in KINDS}
    target = made(source, "F16", folder)
    return Base(TINY, True, target, kinds, settings.text_tokens, settings.answers, settings.tokens)


def _at_hand(name: str, directory: Path, settings: Settings) -> Base:
    """Of a pair whose base was in 4 bits. Less text: these models are a hundred times as large."""
    files = pairs.fetch(name, directory=directory)
    folder = directory / "quant"
    few = (min(settings.text_tokens, 1024), len(PROMPTS), settings.tokens)
    if name == "qwen":
        drafts = {"0.5B Q4_K_M": (files.draft, 8), "1.5B Q2_K": (made(files.target, "Q2_K", folder), 8)}
        return Base("Qwen2.5-Coder 1.5B, Q4_K_M", False, files.target, drafts, *few)
    drafts = {"Q4_1, as shipped": (files.draft, 8)}
    drafts |= {kind: (made(files.target, kind, folder), 8) for kind in KINDS}
    return Base("SmolLM2-135M, F16 of Q4_1", False, files.target, drafts, *few)


def _require_same(readings: Sequence[Reading]) -> None:
    """llama.cpp's F16 and torch's are the same model, or the rows can't be compared. Raises EdgeError."""
    one, other = (next(r.perplexity for r in readings if r.weights == name) for name in ("F16", "W16A16"))
    if abs(one / other - 1) > _SAME:
        raise EdgeError(f"llama.cpp reads the small model with perplexity {one:.3f}, torch with {other:.3f}.")


def run(settings: Settings, tell: Tell = lambda what, done, of: None) -> dict[str, Any]:
    """Rows, and whether the claim held on the base that can tell. Raises EdgeError."""
    directory = default_directory()
    train, kept = king_james.split(king_james.chapters(directory))
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for name in settings.bases:
        task: dict[str, Any] = {}
        if name == "tiny":
            folder = trained(directory, train, settings.steps, tell)
            readings = list(_read_base(_small(folder, settings), kept, task, tell))
            weights = round(8 * readings[0].bytes / readings[0].weight_bits)
            readings += _rounded(folder, task, weights, tell)
            _require_same(readings)
        else:
            readings = list(_read_base(_at_hand(name, directory, settings), kept, task, tell))
        own = [row(reading, readings[0]) for reading in readings]
        rows += own
        if name == "tiny":
            by = {r["weights"]: r for r in own}
            held, sentence = claim(by["W4A16"], [by["W3A16"], by["W2A16"]])
            found |= {"claim_held": held, "claim": sentence}
    return {**found, "rows": rows}


def command(report: Report, settings: Settings) -> None:
    with report.progress() as progress:
        task = progress.add_task("", total=None)
        try:
            found = run(
                settings, lambda what, done, of: progress.update(task, description=what, completed=done, total=of)
            )
        except EdgeError as error:
            raise SystemExit(str(error)) from None
    shown = [{short: row[key] for key, short in COLUMNS.items()} for row in found["rows"]]
    report.table("Fewer bits: the draft's own perplexity, and how often it says what the target says", shown)
    if "claim" in found:
        report.say(found["claim"])
    report.result(found)
