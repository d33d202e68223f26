"""SIGHUP: settings are read again, from `.env` mostly, and those that can change in a running gateway do.

Tenants, keys and quotas live in the database and need no reload. All other settings are those of a process: restart it
(docs/operations.md, "A rolling restart").
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import ValidationError

from app.api.deps import Gateway
from app.config import Settings

log = structlog.get_logger("paceline.reload")

LIVE: Final = frozenset(
    {
        "admin_key",
        "origins",
        "default_policy",
        "hold_ms",
        "draft_tokens",
        "socket_streams",
        "hello_s",
        "idle_s",
        "socket_errors",
        "log_level",
    }
)
"""Read when they are needed, by whoever needs them: sockets that are open keep what `welcome` told them."""


def reload(gateway: Gateway, load: Callable[[], Settings]) -> None:
    """A fault in the new settings changes nothing. What changed is logged by name, never by value."""
    try:
        found = load()
    except ValidationError as error:
        log.error("reload.refused", faults=[".".join(map(str, fault["loc"])) or "settings" for fault in error.errors()])
        return
    now = gateway.settings
    changed = {name for name in type(now).model_fields if getattr(found, name) != getattr(now, name)}
    gateway.settings = now.model_copy(update={name: getattr(found, name) for name in changed & LIVE})
    if "log_level" in changed:
        logging.getLogger().setLevel(gateway.settings.log_level.upper())
    log.warning("reload.done", changed=sorted(changed & LIVE), need_a_restart=sorted(changed - LIVE))
