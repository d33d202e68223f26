"""The real model, its drafts handed over as text through a tokenizer of bytes.

That no history leaves a mark, test_by_text.py shows with scripted drafters: here it would be blurred by floating-point
ties, since a model's logits depend a little on how many tokens are computed at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.byte_vocabulary import END, ByteVocabulary
from edge.config import DeviceSettings
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Sampling
from tests.edge.drafters.contract import propose

pytest.importorskip("llama_cpp")
from edge.drafters.by_text import ByTextDrafter
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.drafters.load import load_drafter

pytestmark = pytest.mark.model

GREEDY = Sampling(temperature=0.0, seed=0)


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaCppDrafter]:
    drafter = LlamaCppDrafter(pair(default_directory()).draft, streams=4, context=256)
    yield drafter
    drafter.close()


def through_bytes(model: LlamaCppDrafter) -> ByTextDrafter:
    end = {END: "<|im_end|>"}
    there = ByTextDrafter(model, ByteVocabulary(), markup=end, own=model.markup)
    return ByTextDrafter(there, model.vocabulary, markup=model.markup, own=end)


def test_it_says_what_the_model_says(model: LlamaCppDrafter) -> None:
    prompt = model.vocabulary.encode("The capital of France is")
    alone, through = model.begin(prompt, GREEDY), through_bytes(model).begin(prompt, GREEDY)
    assert propose(through, 6) == propose(alone, 6)
    alone.close()
    through.close()


def test_the_templates_markup_reaches_a_drafter_that_knows_it(model: LlamaCppDrafter) -> None:
    class Other(ByteVocabulary):
        """Bytes, and ChatML's marks, one behind the other."""

    marks = {256: "<|im_end|>", 257: "<|im_start|>"}
    other = Other()
    other.size = 258
    drafter = ByTextDrafter(model, other, markup=marks, own=model.markup)
    question = "Name a colour."
    prompt = [257, *b"user\n" + question.encode(), 256, *b"\n", 257, *b"assistant\n"]
    asked = model.vocabulary.render([Message("user", question)])
    assert drafter._translated(prompt) == asked[-len(drafter._translated(prompt)) :]


def test_the_same_tokenizer_needs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    files = pair(default_directory())
    drafter = load_drafter(DeviceSettings(target_tokenizer=str(files.target)))
    assert isinstance(drafter, LlamaCppDrafter)
    drafter.close()
