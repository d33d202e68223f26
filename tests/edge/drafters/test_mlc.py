"""The MLC drafter: its own part with a made-up model, its calls with a stand-in, and all of it where MLC-LLM is.

The real ones need PACELINE_TEST_MLC_MODEL (a folder of `mlc_llm gen_config`) and PACELINE_TEST_MLC_LIBRARY (compiled).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.config import DeviceSettings
from edge.doctor import draft_model
from edge.drafters.load import DrafterUnavailable, load_drafter
from edge.drafters.mlc import Candidate, MlcDrafter, MlcEngine, load
from edge.protocol.frames import Message, Sampling
from edge.protocol.noise import noise
from edge.script import ScriptVocabulary
from tests.edge.drafters.contract import Operation, check, check_cancelled, check_long, operations, propose, samplings

GREEDY = Sampling(temperature=0.0, seed=0)
VOCABULARY = ScriptVocabulary()
NAMES = {"<|end|>": VOCABULARY.end}
ROOM = 300


class MadeUp:
    """A model that says something else behind each four tokens."""

    def __init__(self) -> None:
        self.closed = False

    def behind(self, tokens: Sequence[int]) -> list[Candidate]:
        if len(tokens) > ROOM:
            return []
        row = np.random.default_rng(tokens[-4:]).normal(size=VOCABULARY.size) * 3
        row -= np.log(np.exp(row).sum())
        top = np.argsort(-row)[:20]
        names = {token: name.encode() for name, token in NAMES.items()}
        return [(names.get(int(i), VOCABULARY.piece(int(i))), float(row[i])) for i in top]

    def close(self) -> None:
        self.closed = True


def made_up() -> MlcDrafter:
    return MlcDrafter("made up", MadeUp(), VOCABULARY, NAMES)


@settings(max_examples=20, deadline=None)
@given(sampling=samplings(), history=operations(st.integers(0, VOCABULARY.size - 1), most=6))
def test_contract(sampling: Sampling, history: list[Operation]) -> None:
    check(made_up(), VOCABULARY.encode("a prompt"), sampling, history)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8, seed=3)])
def test_contract_of_long_texts(sampling: Sampling) -> None:
    text = VOCABULARY.encode("a long story, told twice. " * 30)[: ROOM - 20]
    check_long(made_up(), VOCABULARY.encode("a prompt"), text, text * 2, sampling)


@pytest.mark.parametrize("drafted", [0, 1, 5])
def test_contract_of_streams_that_end(drafted: int) -> None:
    check_cancelled(made_up(), VOCABULARY.encode("a prompt"), Sampling(temperature=0.8, seed=3), drafted)


def test_among_the_candidates_the_targets_noise_decides() -> None:
    prompt = VOCABULARY.encode("a prompt")
    sampling = Sampling(temperature=0.8, seed=3)
    ids_of = {piece: token for token, piece in enumerate(VOCABULARY.pieces) if piece} | {b"<|end|>": VOCABULARY.end}
    known = {ids_of[data]: value for data, value in MadeUp().behind(prompt)}
    ids = sorted(known)
    scores = np.array([known[token] for token in ids]) / 0.8 + noise(3, 0, 0, np.array(ids))
    expected = ids[int(np.argmax(scores))]
    proposal = made_up().begin(prompt, sampling).propose()
    assert proposal is not None
    assert proposal.token == expected
    assert proposal.confidence == pytest.approx(np.exp(known[expected]))
    top = made_up().begin(prompt, sampling, coupled=False).propose()
    assert top is not None
    assert top.token == max(known, key=lambda token: known[token])


class StandIn:
    """The parts of `AsyncMLCEngine` that are touched; outputs come from a thread of its own, as MLC's do."""

    def __init__(self, *answers: list[Any]) -> None:
        self.state = SimpleNamespace(async_event_loop=None, _async_request_stream_callback_impl=None)
        self.terminated = False
        self._answers = list(answers)
        self._ffi = {"add_request": self._add}

    def _add(self, request: tuple[str, list[int]]) -> None:
        name, _ = request
        outputs = [output_of(name if whose is None else whose, first) for whose, first in self._answers.pop(0)]
        state = self.state
        thread = threading.Thread(
            target=lambda: state.async_event_loop.call_soon_threadsafe(
                state._async_request_stream_callback_impl, outputs
            )
        )
        thread.start()
        thread.join()

    def terminate(self) -> None:
        self.terminated = True


def output_of(name: str, first: Any) -> Any:
    return SimpleNamespace(unpack=lambda: (name, [first]))


def chunk(*tops: tuple[bytes, float], reason: str | None = None) -> Any:
    top = [{"token": "", "logprob": value, "bytes": list(data)} for data, value in tops]
    line = json.dumps({"token": "", "logprob": 0.0, "bytes": [], "top_logprobs": top})
    return SimpleNamespace(
        delta_token_ids=[1],
        delta_logprob_json_strs=[line] if tops else None,
        finish_reason=reason,
        request_final_usage_json_str=None,
    )


USAGE = SimpleNamespace(delta_logprob_json_strs=None, request_final_usage_json_str="{}")


def test_the_engines_outputs_are_read_to_their_end() -> None:
    engine = StandIn(
        [("another", chunk((b"x", -9.0))), (None, chunk((b"a", -0.5), (b"\xff", -1.5))), (None, USAGE)],
        [(None, chunk(reason="length")), (None, USAGE)],
    )
    asked: list[tuple[str, list[int]]] = []

    def request(name: str, tokens: Sequence[int]) -> tuple[str, list[int]]:
        asked.append((name, list(tokens)))
        return asked[-1]

    candidates = MlcEngine(engine, request)
    assert candidates.behind([1, 2]) == [(b"a", -0.5), (b"\xff", -1.5)]
    assert candidates.behind([1, 2, 3]) == [], "it doesn't fit"
    assert [tokens for _, tokens in asked] == [[1, 2], [1, 2, 3]]
    assert asked[0][0] != asked[1][0]
    candidates.close()
    assert engine.terminated


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    given = DeviceSettings(_env_file=None, drafter="mlc", draft_model=str(tmp_path))  # type: ignore[call-arg]
    with pytest.raises(DrafterUnavailable, match="gen_config"):
        load_drafter(given)
    (tmp_path / "mlc-chat-config.json").write_text("{}")
    with pytest.raises(DrafterUnavailable, match="PACELINE_MLC_LIBRARY"):
        load_drafter(given)
    assert draft_model(given).state == "failed"


@pytest.fixture(scope="module")
def real() -> Iterator[MlcDrafter]:
    pytest.importorskip("mlc_llm", reason="MLC-LLM is not installed here (docs/edge.md)")
    folder, library = (os.environ.get(f"PACELINE_TEST_MLC_{name}") for name in ("MODEL", "LIBRARY"))
    if not folder or not library:
        pytest.skip("PACELINE_TEST_MLC_MODEL and PACELINE_TEST_MLC_LIBRARY name no compiled model")
    drafter = load(Path(folder), Path(library), streams=4, context=512)
    yield drafter
    drafter.close()


def prompt_of(drafter: MlcDrafter) -> list[int]:
    assert drafter.vocabulary is not None
    return drafter.vocabulary.render([Message("user", "Name three rivers of Europe and one thing about each.")])


@settings(max_examples=8, derandomize=True, deadline=None)
@given(sampling=samplings(), history=operations(st.integers(200, 20_000), most=6))
def test_contract_on_mlc(real: MlcDrafter, sampling: Sampling, history: list[Operation]) -> None:
    check(real, prompt_of(real), sampling, history)


def test_contract_of_long_texts_on_mlc(real: MlcDrafter) -> None:
    assert real.vocabulary is not None
    text = (real.vocabulary.encode("The ferry left the harbour at nine, and nobody on it had paid. ") * 40)[:400]
    check_long(real, prompt_of(real), text, text * 2, GREEDY)


def test_contract_of_streams_that_end_on_mlc(real: MlcDrafter) -> None:
    check_cancelled(real, prompt_of(real), GREEDY, 3)


def test_it_answers_the_question_on_mlc(real: MlcDrafter) -> None:
    assert real.vocabulary is not None
    said = propose(real.begin(prompt_of(real), GREEDY), 24)
    assert "river" in b"".join(map(real.vocabulary.piece, said)).decode(errors="replace").lower()
