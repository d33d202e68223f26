"""Chat templates come with model files, messages from anybody: neither gets further than a text."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

llama_vocabulary = pytest.importorskip("edge.llama_vocabulary", reason="needs llama.cpp")

from edge.protocol.errors import InvalidRequest  # noqa: E402
from edge.protocol.frames import Message  # noqa: E402


def render(source: str, *messages: Message) -> str:
    """The text that is tokenised."""
    texts: list[str] = []

    def encode(text: str, *, special: bool) -> list[int]:
        texts.append(text)
        return []

    stand_in: Any = SimpleNamespace(
        _template=llama_vocabulary._environment().from_string(source),
        _markup={"bos_token": "<s>", "eos_token": "</s>"},
        _adds_begin=False,
        encode=encode,
    )
    llama_vocabulary.LlamaVocabulary.render(stand_in, messages or (Message("user", "Hi"),))
    return texts[0]


@pytest.mark.parametrize("text", ["{{ 7 * 7 }}", "{% for x in y %}", "{# gone #}", "{{ messages }}", "{%- raw %}"])
def test_a_message_is_never_a_template(text: str) -> None:
    assert f"<|im_start|>user\n{text}<|im_end|>" in render(llama_vocabulary.CHATML, Message("user", text))


@given(st.text(), st.text())
def test_any_text_comes_through_as_it_is(role: str, content: str) -> None:
    expected = f"<|im_start|>{role}\n{content}<|im_end|>\n<|im_start|>assistant\n"
    assert render(llama_vocabulary.CHATML, Message(role, content)) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ messages.append(1) }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ strftime_now.__globals__ }}",
        "{{ raise_exception.__code__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as x %}",
    ],
)
def test_a_template_reaches_nothing_outside(source: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert render(source) == ""  # what isn't there is nothing


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ 1 + 'a' }}",
        "{{ [][5].x }}",
        "{{ range(10**9)|list }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 999 }}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_that_fails_or_never_ends_is_a_refusal(source: str) -> None:
    with pytest.raises(InvalidRequest):
        render(source)
