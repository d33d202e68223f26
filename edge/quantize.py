"""`paceline-edge quantize`: a draft model of a target, in fewer bits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edge.errors import EdgeError
from edge.llama import LlamaError, Model, quantize

KINDS: Final = {8: "Q8_0", 6: "Q6_K", 5: "Q5_K_M", 4: "Q4_K_M", 3: "Q3_K_M", 2: "Q2_K"}
"""llama.cpp's for so many bits a weight. Tensors whose rows don't divide by 256 fall back to a neighbour with more."""

_WHOLE: Final = ("F16", "BF16", "F32")


class Quantized:
    """What was made. `requantised`: the source had been through fewer bits before, and what it lost stays lost."""

    def __init__(self, path: Path, source: str, made: str, *, source_bytes: int, made_bytes: int) -> None:
        self.path = path
        self.source = source
        self.made = made
        self.source_bytes = source_bytes
        self.made_bytes = made_bytes

    @property
    def requantised(self) -> bool:
        return not any(word in self.source.split() for word in _WHOLE)


def make_draft(target: Path, kind: str, out: Path | None, *, threads: int = 0) -> Quantized:
    """Quantise `target` (GGUF) as llama.cpp's `kind`; beside it by default. Seconds to minutes. Raises EdgeError."""
    path = out or target.with_name(f"{target.stem.removesuffix('-F16').removesuffix('-f16')}-{kind}.gguf")
    if path.exists():
        raise EdgeError(f"{path} exists already: delete it, or name another file by --out.")
    if path.resolve() == target.resolve():
        raise EdgeError("The draft can't be written over its target.")
    try:
        source, source_bytes = _describe(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        quantize(target, path, kind, threads=threads)
        made, made_bytes = _describe(path)
    except LlamaError as error:
        raise EdgeError(str(error)) from error
    except OSError as error:
        raise EdgeError(f"Can't write {path}: {error.strerror or error}.") from error
    return Quantized(path, source, made, source_bytes=source_bytes, made_bytes=made_bytes)


def _describe(path: Path) -> tuple[str, int]:
    """What a file is, and its weights' bytes."""
    model = Model(path)
    try:
        return model.description, model.bytes
    finally:
        model.close()
