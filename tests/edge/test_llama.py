"""The layer over llama.cpp, on the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("llama_cpp")
from edge import llama_cells
from edge.llama import CacheFull, Context, ContextSettings, LlamaError, Model, quantize
from edge.models import default_directory, pair
from edge.protocol.errors import EngineFailed, InvalidRequest
from edge.protocol.frames import Message

TARGET = pair(default_directory()).target
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not TARGET.is_file(), reason="the embedded model is not in the model cache"),
]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model(TARGET)
    yield model
    model.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = Context(model, ContextSettings(sequences=4, tokens=512, steady=True))
    yield context
    context.close()


def compute(context: Context, *runs: tuple[int, int, list[int]]) -> list[NDArray[np.float32]]:
    """Runs of (sequence, start, tokens); gives the logits behind every token."""
    tokens = [token for _, _, run in runs for token in run]
    positions = [start + i for _, start, run in runs for i in range(len(run))]
    sequences = [sequence for sequence, _, run in runs for _ in run]
    context.decode(tokens, positions, sequences, [True] * len(tokens))
    return [context.logits(i).copy() for i in range(len(tokens))]


def last(context: Context, sequence: int, tokens: list[int]) -> NDArray[np.float32]:
    """Only the last row, as prefill asks for it."""
    count = len(tokens)
    context.decode(tokens, range(count), [sequence] * count, [False] * (count - 1) + [True])
    return context.logits(0).copy()


def test_loading_tells_how_far_it_is() -> None:
    shares: list[float] = []
    Model(TARGET, progress=shares.append).close()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_is_not_a_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LlamaError, match="no such model file"):
        Model(tmp_path / "absent.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model at all")
    with pytest.raises(LlamaError, match=r"broken\.gguf can't be loaded.*magic"):
        Model(broken)


def test_a_closed_model_says_so() -> None:
    model = Model(TARGET)
    model.close()
    model.close()
    with pytest.raises(LlamaError, match="was closed"):
        Context(model, ContextSettings())
    with pytest.raises(EngineFailed):
        model.vocabulary.encode("Hi")
    assert model.vocabulary.piece(model.vocabulary.size - 1)


def test_text_survives_tokenisation(model: Model) -> None:
    text = "Ça va? 東京 🚴 <|im_end|>\n\tx"
    ids = model.vocabulary.encode(text)
    assert b"".join(map(model.vocabulary.piece, ids)).decode() == text
    assert not model.vocabulary.ends.intersection(ids)


def test_markup_becomes_a_control_token_when_asked(model: Model) -> None:
    (end,) = model.vocabulary.encode("<|im_end|>", special=True)
    assert end in model.vocabulary.ends
    assert model.vocabulary.piece(end) == b""


def test_an_empty_text_has_no_tokens(model: Model) -> None:
    assert model.vocabulary.encode("") == []


def test_the_models_own_template_is_used(model: Model) -> None:
    plain = model.vocabulary.render([Message("user", "Hi")])
    with_system = model.vocabulary.render([Message("system", "Be brief."), Message("user", "Hi")])
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert with_system == model.vocabulary.encode(expected, special=True)
    assert len(plain) > len(with_system), "SmolLM2's template adds a system prompt where there is none"


def test_a_template_that_refuses_is_the_clients_fault(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    template = model.vocabulary._template.environment.from_string("{{ raise_exception('no such role') }}")
    monkeypatch.setattr(model.vocabulary, "_template", template)
    with pytest.raises(InvalidRequest, match="no such role"):
        model.vocabulary.render([Message("user", "Hi")])


def test_a_template_can_not_reach_out_of_its_sandbox(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    monkeypatch.setattr(model.vocabulary, "_template", model.vocabulary._template.environment.from_string(source))
    with pytest.raises(InvalidRequest):
        model.vocabulary.render([Message("user", "Hi")])


def test_steady_logits_are_the_same_to_the_bit_in_every_shape_of_batch(model: Model, context: Context) -> None:
    encode = model.vocabulary.encode
    tokens = encode("The river Danube rises in the Black Forest and flows through ten countries.")[:12]
    others = [encode(text) for text in ("One two three four", "Roses are red and so", "import numpy as")]
    alone = [compute(context, (0, i, [token]))[0] for i, token in enumerate(tokens)]
    context.remove(0, 0)
    at_once = compute(context, (0, 0, tokens))
    context.remove(0, 0)
    assert np.array_equal(last(context, 0, tokens), alone[-1])
    context.remove(0, 0)
    beside = [(i + 1, 0, run) for i, run in enumerate(others)]
    among = compute(context, *beside, (0, 0, tokens))[-len(tokens) :]
    context.remove(0, 4)
    wrong = compute(context, (0, 4, [tokens[4], 99, 98, 97]), (1, len(others[0]), [5]))
    context.remove(0, 5)
    after = compute(context, (0, 5, tokens[5:9]))
    for found in (at_once, among, [*alone[:4], wrong[0], *after]):
        assert all(np.array_equal(row, other) for row, other in zip(found, alone, strict=False))


def test_steady_logits_stay_the_same_to_the_bit_when_the_cache_is_full_of_holes(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sequences in turns, with wrong drafts of other lengths each time; the log is rewritten often."""
    monkeypatch.setattr(llama_cells, "SLACK", 8)
    rewritten: list[int] = []
    rewrite = llama_cells.OrderedCells._rewrite

    def rewrite_and_note(cells: llama_cells.OrderedCells) -> None:
        rewrite(cells)
        rewritten.append(cells._end)

    monkeypatch.setattr(llama_cells.OrderedCells, "_rewrite", rewrite_and_note)
    context = Context(model, ContextSettings(sequences=2, tokens=128, steady=True))
    tokens = model.vocabulary.encode("The river Danube rises in the Black Forest and flows through ten countries.")
    alone = [compute(context, (0, i, [token]))[0] for i, token in enumerate(tokens)]
    context.remove(0, 0)
    for i, token in enumerate(tokens):
        for sequence in (0, 1) if i % 3 else (1, 0):
            wrong = [77] * ((3 * i + sequence) % 5)
            assert np.array_equal(compute(context, (sequence, i, [token, *wrong]))[0], alone[i])
            context.remove(sequence, i + 1)
    assert len(rewritten) > 2
    assert max(rewritten) <= 2 * len(tokens)
    context.close()


def test_steady_results_need_one_pool(model: Model) -> None:
    with pytest.raises(LlamaError, match="unified"):
        Context(model, ContextSettings(steady=True, unified=False))


def test_more_than_is_computed_at_a_time_gives_the_same_rows(model: Model, context: Context) -> None:
    for length in (63, 64, 65, 127):
        tokens = [1 + i % 7 for i in range(length)]
        every = compute(context, (0, 0, tokens))
        context.remove(0, 0)
        assert np.array_equal(last(context, 0, tokens), every[-1])
        context.remove(0, 0)


@pytest.mark.parametrize("unified", [True, False])
def test_a_copy_goes_on_like_its_source_and_leaves_it_alone(model: Model, unified: bool) -> None:
    settings = ContextSettings(sequences=2, tokens=128, unified=unified)
    context = Context(model, settings)
    tokens = model.vocabulary.encode("The river Danube rises in the Black Forest")
    compute(context, (0, 0, tokens))
    context.copy(0, 1, 5)
    assert np.allclose(compute(context, (1, 5, [7]))[0], _fresh(model, settings, [*tokens[:5], 7]), atol=0.2)
    context.remove(1, 0)
    expected = _fresh(model, settings, [*tokens, 7])
    assert np.allclose(compute(context, (0, len(tokens), [7]))[0], expected, atol=0.2)
    context.close()


def _fresh(model: Model, settings: ContextSettings, tokens: list[int]) -> NDArray[np.float32]:
    context = Context(model, settings)
    try:
        return compute(context, (0, 0, tokens))[-1]
    finally:
        context.close()


def test_a_full_cache_refuses_the_step_and_keeps_what_it_holds(model: Model) -> None:
    context = Context(model, ContextSettings(sequences=2, tokens=256))
    compute(context, (0, 0, [1 + i % 5 for i in range(250)]))
    with pytest.raises(CacheFull):
        compute(context, (1, 0, [1] * 20))
    assert np.isfinite(compute(context, (0, 250, [3]))[0]).all()
    context.remove(0, 0)
    compute(context, (1, 0, [1] * 20))
    context.close()
    context.close()


@pytest.mark.parametrize("count", [0, 257])
def test_a_batch_of_the_wrong_size_is_refused(context: Context, count: int) -> None:
    with pytest.raises(LlamaError, match=f"batch of {count} tokens"):
        compute(context, (0, 0, [1] * count))


def test_quantising_says_what_is_wrong_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LlamaError, match="unknown kind"):
        quantize(TARGET, tmp_path / "out.gguf", "Q17")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"nothing")
    with pytest.raises(LlamaError, match=r"broken\.gguf can't be written as Q4_0"):
        quantize(broken, tmp_path / "out.gguf", "Q4_0")
    assert list(tmp_path.iterdir()) == [broken]
