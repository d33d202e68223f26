from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.quickstart import QuickstartError, stay


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        (f"import os; os.kill(os.getpid(), {signal.SIGKILL:d})", "was ended by SIGKILL"),
    ],
)
def test_a_gateway_that_ends_by_itself_is_noticed_and_its_log_shown(tmp_path: Path, program: str, how: str) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("out of memory\n")
    process = subprocess.Popen([sys.executable, "-c", program])  # noqa: S603
    with pytest.raises(QuickstartError, match=how) as told:
        stay(process, log)
    assert "out of memory" in str(told.value)
