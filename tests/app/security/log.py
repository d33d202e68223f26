"""The gateway's log, as it would be written to stderr."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from app.telemetry import configure_logging

CLIENTS = ("httpx2", "httpcore2", "websockets.client")
"""The tests' own clients log as well, in the same process."""


@contextlib.contextmanager
def captured(style: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """`style`: json or console; everything from level debug."""
    text = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    monkeypatch.setattr(sys, "stderr", text)
    configure_logging(style, "debug")
    for name in CLIENTS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield text
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        for name in CLIENTS:
            logging.getLogger(name).setLevel(logging.NOTSET)
        structlog.reset_defaults()
