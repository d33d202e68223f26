from __future__ import annotations

import stat
from pathlib import Path

from edge.privacy import Disclosure, DisclosureLog, Over, Prompt, Recorder
from edge.protocol.frames import Cancel, Draft, EdgeFrame, Message, Open, Ping, edge_codec


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


def recorder(log: DisclosureLog, *, tokenizer: bool = True) -> Recorder:
    ids = iter("abcdef")
    return Recorder(
        log,
        gateway="http://gateway",
        mode="full",
        now=lambda: "2026-01-02T03:04:05Z",
        new_id=lambda: next(ids),
        piece=(lambda token: bytes([token])) if tokenizer else None,
    )


def test_what_the_socket_sends_is_what_is_recorded(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    record = recorder(log)
    frames: list[EdgeFrame] = [
        Open(0, "m", prompt=tuple(b"secret")),
        Draft(0, 0, 0, tuple(b" no")),
        Draft(0, 1, 1, tuple(b"body")),
        Cancel(0),
    ]
    codec = edge_codec()
    record.observe(Ping(1), 9)
    record.observe(frames[0], len(codec.encode(frames[0])))
    assert log.read()[0].sent.text == "secret", "on record before the socket has it"
    assert log.read()[0].sent.tokens == 6
    for frame in frames[1:]:
        record.observe(frame, len(codec.encode(frame)))
    record.over()
    over = log.read()[0].over
    assert over == Over("a", sum(len(codec.encode(f)) for f in frames), 7, " nobody")


def test_a_stream_opened_anew_has_left_anew_with_what_it_carries(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    record = recorder(log)
    record.observe(Open(0, "m", prompt=tuple(b"ask")), 20)
    record.observe(Open(1, "m", prompt=tuple(b"ask"), committed=tuple(b" and")), 25)
    record.over()
    assert [(d.sent.text, d.over and d.over.bytes_up) for d in log.read()] == [("ask", 20), ("ask and", 25)]


def test_without_a_tokenizer_messages_are_text_and_drafts_are_ids(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    record = recorder(log, tokenizer=False)
    record.observe(Open(0, "m", messages=(Message("user", "hello"),)), 20)
    record.observe(Draft(0, 0, 0, (5, 6)), 7)
    record.over()
    (disclosure,) = log.read()
    assert (disclosure.sent.tokens, disclosure.sent.text) == (None, "user: hello")
    assert disclosure.over == Over("a", 27, 2, "token ids 5 6")


def test_a_cloud_only_question_is_recorded_too(tmp_path: Path) -> None:
    log = DisclosureLog(tmp_path / "d.jsonl")
    over = recorder(log).asked("m", [Message("system", "be brief"), Message("user", "hello")])
    assert log.read()[0] == Disclosure(log.read()[0].sent, None)
    assert log.read()[0].sent.text == "system: be brief\nuser: hello"
    over(321)
    assert log.read()[0].over == Over("a", 321, 0, "")
