"""`bench batching`: both sides do the same work."""

from __future__ import annotations

import pytest

from bench.batching import Rates, compare
from edge.models import default_directory, pair


def test_ratios_are_of_medians() -> None:
    data = Rates(ours=[90.0, 10.0, 100.0], llama_server=[100.0, 300.0, 1.0], one_stream=[30.0, 30.0, 31.0]).data()
    assert data["ours_tok_s"] == 90
    assert data["llama_server_tok_s"] == 100
    assert data["one_stream_tok_s"] == 30
    assert data["ours_over_llama_server"] == pytest.approx(0.9)
    assert data["ours_over_one_stream"] == pytest.approx(3)


@pytest.mark.model
async def test_both_answer_the_same_prompts() -> None:
    pytest.importorskip("xllamacpp", reason="needs the extra `bench`")
    rates = await compare(pair(default_directory()).target, streams=2, tokens=6, rounds=1)
    assert rates.same_text
    assert len(rates.ours) == len(rates.llama_server) == len(rates.one_stream) == 1
