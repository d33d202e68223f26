"""Recall and precision of the redaction, by kind and by language, on labelled messages.

Two sets: ours (redaction_corpus.py), and one whose data are Faker's (redaction_held_out.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bench import redaction_held_out
from bench.redaction_corpus import Labelled, corpus
from bench.report import Report, machine
from edge.protocol.frames import Message
from edge.redaction.redactor import Redactor, recognisers
from edge.redaction.restoring import Restorer
from edge.redaction.spans import Span


def command(report: Report, seed: int, *, held_out: bool) -> None:
    messages = redaction_held_out.held_out(seed) if held_out else corpus(seed)
    redactor = Redactor(recognisers())
    found = [redactor.find(message.text) for message in messages]
    kinds = rows((m.spans, spans) for m, spans in zip(messages, found, strict=True))
    report.table(f"Redaction, {len(messages)} messages, by kind", kinds)
    languages = [language_row(name, messages, found) for name in dict.fromkeys(m.language for m in messages)]
    report.table("By language", languages)
    restored = sum(round_trip(message.text) for message in messages)
    report.say(f"Restored to the letter after redaction: {restored} of {len(messages)}")
    report.result(
        {
            "messages": len(messages),
            "held_out": held_out,
            "kinds": kinds,
            "languages": languages,
            "restored": restored,
            "machine": machine(),
        }
    )


def rows(cases: Iterable[tuple[Sequence[Span], Sequence[Span]]]) -> list[dict[str, Any]]:
    """One row a kind.

    `recall`: of the data, how much was wholly covered, by whatever kind: then it has not left. `named`: and by its own
    kind. `precision`: of what was replaced under this kind, how much touches data.
    """
    true, covered, named, claimed, right = (Counter[str]() for _ in range(5))
    for truth, spans in cases:
        for span in truth:
            true[span.kind] += 1
            covered[span.kind] += _covers(spans, span)
            named[span.kind] += _covers([s for s in spans if s.kind == span.kind], span)
        for span in spans:
            claimed[span.kind] += 1
            right[span.kind] += any(span.start < t.end and t.start < span.end for t in truth)
    return [
        {
            "kind": kind,
            "data": true[kind],
            "recall": covered[kind] / true[kind] if true[kind] else None,
            "named": named[kind] / true[kind] if true[kind] else None,
            "replaced": claimed[kind],
            "precision": right[kind] / claimed[kind] if claimed[kind] else None,
        }
        for kind in sorted(true | claimed)
    ]


def language_row(name: str, messages: Sequence[Labelled], found: Sequence[Sequence[Span]]) -> dict[str, Any]:
    cases = [(m, spans) for m, spans in zip(messages, found, strict=True) if m.language == name]
    truth = sum(len(m.spans) for m, _ in cases)
    covered = sum(_covers(spans, span) for m, spans in cases for span in m.spans)
    claimed = sum(len(spans) for _, spans in cases)
    right = sum(any(s.start < t.end and t.start < s.end for t in m.spans) for m, spans in cases for s in spans)
    return {"language": name, "data": truth, "recall": covered / truth, "precision": right / claimed}


def round_trip(text: str) -> bool:
    """Whether an answer that repeats the redacted message gives the message back."""
    redactor = Redactor(recognisers())
    (sent,) = redactor.redact([Message("user", text)])
    restorer = Restorer(redactor.originals)
    return "".join([*(restorer.push(character) for character in sent.content), restorer.end()]) == text


def _covers(spans: Iterable[Span], datum: Span) -> bool:
    """Whether every character of it is replaced."""
    left = set(range(datum.start, datum.end))
    for span in spans:
        left -= set(range(span.start, span.end))
    return not left
