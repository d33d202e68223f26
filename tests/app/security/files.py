from __future__ import annotations

from pathlib import Path


def everything(folder: Path) -> bytes:
    """All that is written in it."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
