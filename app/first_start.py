"""The first start with an empty database: an API key, shown once and kept where only this user can read it."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

from app.tenants.service import Tenants

KEY_FILE = "initial-key"


async def ensure_key(tenants: Tenants, data_dir: Path) -> str | None:
    """Make, show and keep a key if there is none at all; returns it then."""
    key = await tenants.first_key()
    if key is None:
        return None
    path = data_dir / KEY_FILE
    write_private(path, key + "\n")
    console = Console(stderr=True)
    console.print(
        Panel(
            f"[bold]{key}[/bold]\n\nYour first API key (tenant [bold]default[/bold]). It is also in {path},"
            "\nwhere `paceline-edge` on this machine finds it. Make others with `paceline-gateway keys create`.",
            title="API key",
            border_style="green",
            expand=False,
        )
    )
    return key


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody but this user may read, at no moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
