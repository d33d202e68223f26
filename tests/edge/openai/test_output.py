from __future__ import annotations

import pytest

from edge.openai.job import Job
from edge.openai.output import ChoiceOutput, Collected
from edge.protocol.frames import Sampling, TokenLogprob
from edge.script import ScriptVocabulary

VOCABULARY = ScriptVocabulary()


def output(**fields: object) -> ChoiceOutput:
    job = Job(prompt=(1,), sampling=Sampling(seed=1), max_tokens=100, **fields)  # type: ignore[arg-type]
    return ChoiceOutput(job, VOCABULARY)


def logprobs(data: bytes) -> list[TokenLogprob]:
    return [TokenLogprob(byte, -float(i)) for i, byte in enumerate(data)]


def test_text_comes_in_whole_characters_and_the_rest_in_the_end() -> None:
    text = output()
    assert [text.push([byte]).text for byte in "é☃👍".encode()] == ["", "é", "", "", "☃", "", "", "", "👍"]
    assert text.push([0xE2]).text == ""
    assert text.finish(None).text == "�"


def test_what_may_begin_a_stop_string_waits() -> None:
    text = output(stop=("END",))
    assert [text.push([byte]).text for byte in b"aENb"] == ["a", "", "", "ENb"]
    assert text.push(list(b"cEND")).text == "c"
    assert text.finish(5).text == ""


def test_before_min_tokens_a_stop_string_is_text() -> None:
    text = output(stop=("b",), min_tokens=3)
    assert text.push(list(b"ab")).text == "ab"
    assert text.push(list(b"cb")).text == "c"


@pytest.mark.parametrize("at_once", [True, False])
def test_no_logprobs_of_a_stop_string_or_behind_it_are_shown(at_once: bool) -> None:
    data, whole = b"abEND", output(stop=("END",), logprobs=0)
    shown = Collected()
    if at_once:
        shown.add(whole.push(data, logprobs(data)))
    else:
        for entry in logprobs(data):
            shown.add(whole.push([entry.token], [entry]))
    shown.add(whole.finish(2))
    assert shown.text == "ab"
    assert bytes(entry.token for entry in shown.logprobs) == b"ab"


def test_logprobs_come_with_their_text_and_not_before_it() -> None:
    text, data = output(logprobs=0), "a☃".encode()
    parts = [text.push([entry.token], [entry]) for entry in logprobs(data)]
    assert [len(part.logprobs) for part in parts] == [1, 0, 0, 3]


def test_the_token_that_ends_an_answer_has_no_logprobs() -> None:
    text = output(logprobs=0)
    part = text.push([97, VOCABULARY.end], [TokenLogprob(97, -1.0), TokenLogprob(VOCABULARY.end, -2.0)])
    assert [entry.token for entry in part.logprobs] == [97]


def test_an_answer_with_calls_ends_for_them_and_one_that_was_cut_does_not() -> None:
    calling = output(tools=frozenset({"f"}))
    calling.push(b'<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    calling.finish(None)
    assert calling.reason("stop") == "tool_calls"
    assert calling.reason("length") == "length"
    assert output(tools=frozenset({"f"})).reason("stop") == "stop"
