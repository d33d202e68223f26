"""The bench on the scripted pair: modes differ as they are said to, and a log that lies is found out."""

from __future__ import annotations

import pytest

from bench import disclosure
from bench.disclosure import MODES, Sent, by_the_log
from bench.report import Report
from edge.privacy import Disclosure, Over, Prompt


async def test_each_mode_sends_what_it_says() -> None:
    rows = {row["mode"]: row for row in await disclosure.run("scripted", 24)}
    assert tuple(rows) == MODES
    assert all(row["equal"] for row in rows.values())
    assert {mode: row["data_on_the_wire"] for mode, row in rows.items()} == {
        "full": 3,
        "redacted": 0,
        "draft_only": 0,
        "local": 0,
    }
    assert "[EMAIL_1]" in rows["redacted"]["wire"]["prompt"]
    assert rows["draft_only"]["wire"]["prompt"] == ""
    assert rows["draft_only"]["wire"]["draft_tokens"] > 0
    assert rows["local"]["connections"] == 0


def test_a_log_that_leaves_out_a_byte_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Prompt("1", "now", "gateway", "m", "full", "hybrid", 2, "ab")
    assert by_the_log([Disclosure(said, Over("1", 20, 1, "c"))]) == Sent(b"ab", b"c", 1, 20)
    honest = disclosure.by_the_log
    monkeypatch.setattr(
        disclosure,
        "by_the_log",
        lambda found: honest([Disclosure(d.sent, Over("1", 0, 0, "")) for d in found]),
    )
    with pytest.raises(SystemExit, match="differs from the wire"):
        disclosure.command(Report(as_json=False), "scripted", 8)
