from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edge.privacy import Disclosure, DisclosureLog, NotYet, Over, Prompt, require_available


def prompt(number: int, text: str = "<|im_start|>user\nhello") -> Prompt:
    return Prompt(
        id=f"r{number}",
        at="2026-01-02T03:04:05Z",
        gateway="http://127.0.0.1:8000",
        model="m",
        mode="full",
        route="hybrid",
        tokens=4,
        text=text,
    )


def test_a_request_is_on_record_before_it_is_over(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "state" / "disclosures.jsonl")
    log.write(prompt(1))
    assert log.read() == [Disclosure(prompt(1), None)]
    over = Over(id="r1", bytes_up=123, draft_tokens=2, drafts=" the\n end ☃")
    log.write(over)
    assert log.read() == [Disclosure(prompt(1), over)]


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "state" / "disclosures.jsonl")
    log.write(prompt(1))
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_it_is_bounded_and_loses_the_oldest_first(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl", limit_bytes=2000)
    for number in range(100):
        log.write(prompt(number))
    kept = [d.sent.id for d in log.read()]
    assert kept == [f"r{n}" for n in range(100 - len(kept), 100)]
    assert 2000 < sum(p.stat().st_size for p in tmp_path.iterdir()) < 4600
    assert stat.S_IMODE(log.aside.stat().st_mode) == 0o600


def test_the_last_ones_and_clearing(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    assert log.read() == []
    for number in range(5):
        log.write(prompt(number))
    assert [d.sent.id for d in log.read(2)] == ["r3", "r4"]
    assert log.read(0) == []
    log.clear()
    assert log.read() == []
    log.clear()


def test_a_line_cut_short_costs_only_itself(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    log.write(prompt(1))
    with log.path.open("ab") as file:
        file.write(b'{"type":"over","id":"r1","byt\n')
    log.write(prompt(2))
    assert [d.sent.id for d in log.read()] == ["r1", "r2"]


@pytest.mark.parametrize("mode", ["redacted", "draft_only"])
def test_a_mode_that_does_not_exist_is_refused(mode: str) -> None:
    with pytest.raises(NotYet, match="does not exist yet"):
        require_available(mode)


@pytest.mark.parametrize("mode", ["full", "local"])
def test_the_others_are_taken(mode: str) -> None:
    require_available(mode)
