from __future__ import annotations

import pytest

from bench.redaction import rows
from bench.redaction_corpus import corpus
from bench.redaction_held_out import held_out
from edge.redaction.redactor import Redactor, recognisers
from edge.redaction.spans import Span


def test_the_corpus_is_300_messages_in_five_languages_and_always_the_same() -> None:
    messages = corpus()
    assert len(messages) == 300
    assert {m.language for m in messages} == {"en", "de", "fr", "es", "ja"}
    assert messages == corpus()
    assert messages != corpus(9)
    assert all(m.text[s.start : s.end].strip() for m in messages for s in m.spans)


def test_rows_count_what_was_covered_and_what_was_right() -> None:
    truth = [Span(0, 4, "EMAIL"), Span(10, 14, "CARD")]
    found = [Span(0, 4, "EMAIL"), Span(10, 13, "CARD"), Span(20, 24, "CARD")]
    by_kind = {row["kind"]: row for row in rows([(truth, found)])}
    assert by_kind["EMAIL"]["recall"] == 1.0
    assert by_kind["CARD"]["recall"] == 0.0, "partly covered has leaked"
    assert by_kind["CARD"]["precision"] == 0.5


@pytest.mark.parametrize("kind", ["EMAIL", "IBAN", "CARD", "ID", "PHONE", "ADDRESS"])
def test_on_the_corpus_nothing_that_can_be_checked_is_missed(kind: str) -> None:
    redactor = Redactor(recognisers())
    found = {row["kind"]: row for row in rows((m.spans, redactor.find(m.text)) for m in corpus())}
    assert found[kind]["recall"] == 1.0


def test_the_held_out_set_is_300_other_messages_and_always_the_same() -> None:
    pytest.importorskip("faker")
    messages = held_out()
    assert len(messages) == 300
    assert messages == held_out()
    assert not {m.text for m in messages} & {m.text for m in corpus()}
    assert {s.kind for m in messages for s in m.spans} == {"NAME", "EMAIL", "IBAN", "CARD", "ADDRESS"}
    assert all(m.text[s.start : s.end].strip() for m in messages for s in m.spans)
